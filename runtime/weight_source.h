#pragma once
// Where weights come from, as the runtime sees it: a range of bytes that somebody else opened and checked. The runtime
// knows nothing of model formats; tools connect a loader's file to this.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "support/error.h"

namespace forge::runtime {

/// Ranged reads of a model's bytes. All methods may be called from several threads at once.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// What it is called in messages.
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual std::uint64_t bytes() const = 0;
  /// All bytes when they lie in memory (a mapped file), else empty: then `read` is the only way.
  [[nodiscard]] virtual std::span<const std::byte> data() const = 0;
  /// Copies [offset, offset + out.size()). Errors: Error(kIo) outside the source or when reading fails.
  virtual void read(std::uint64_t offset, std::span<std::byte> out) const = 0;
  /// Says that a range will be read soon, so that the kernel can fetch it meanwhile. Never fails.
  virtual void prefetch(std::uint64_t offset, std::uint64_t bytes) const noexcept = 0;
  /// Says that a range is not needed soon: its pages may leave memory and will be read again on use. Never fails.
  virtual void release(std::uint64_t offset, std::uint64_t bytes) const noexcept = 0;
};

/// Bytes in memory that outlive this object.
class SpanWeightSource final : public WeightSource {
 public:
  enum class Backing : std::uint8_t {
    kFile,  ///< a read-only mapping of a file: pages may be dropped
    kHeap,  ///< anything else: dropping pages would lose the bytes, so hints do nothing
  };

  SpanWeightSource(std::string name, std::span<const std::byte> data, Backing backing)
      : name_(std::move(name)), data_(data), backing_(backing) {}

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] std::uint64_t bytes() const override { return data_.size(); }
  [[nodiscard]] std::span<const std::byte> data() const override { return data_; }

  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > data_.size() || out.size() > data_.size() - offset)
      throw Error(ErrorCode::kIo, "cannot read " + printable(name_, 200),
                  std::to_string(out.size()) + " bytes at " + std::to_string(offset) + " are not in its " +
                      std::to_string(data_.size()),
                  "the model may have changed since the plan was made: compile it again");
    if (!out.empty()) std::memcpy(out.data(), data_.data() + offset, out.size());
  }
  void prefetch(std::uint64_t offset, std::uint64_t bytes) const noexcept override {
    advise(offset, bytes, MADV_WILLNEED);
  }
  void release(std::uint64_t offset, std::uint64_t bytes) const noexcept override {
    advise(offset, bytes, MADV_DONTNEED);
  }

 private:
  /// On whole pages: those inside the range when dropping (a neighbour may be in use), those touching it otherwise.
  void advise(std::uint64_t offset, std::uint64_t bytes, int advice) const noexcept {
    if (backing_ != Backing::kFile || offset >= data_.size()) return;
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto base = reinterpret_cast<std::uintptr_t>(data_.data());
    std::uintptr_t begin = base + offset, end = begin + std::min<std::uint64_t>(bytes, data_.size() - offset);
    if (advice == MADV_DONTNEED) {
      begin = (begin + page - 1) / page * page;
      end = end / page * page;
    } else {
      begin = begin / page * page;
    }
    auto* const first = const_cast<std::byte*>(data_.data()) + static_cast<std::ptrdiff_t>(begin - base);
    if (begin < end) (void)::madvise(first, end - begin, advice);
  }

  std::string name_;
  std::span<const std::byte> data_;
  Backing backing_;
};

}  // namespace forge::runtime

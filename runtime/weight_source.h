#pragma once
// Where weights come from, as the runtime sees it: a range of bytes that somebody else opened and checked. The runtime
// knows nothing of model formats; tools connect a loader's file to this.

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
};

/// Bytes in memory that outlive this object.
class SpanWeightSource final : public WeightSource {
 public:
  SpanWeightSource(std::string name, std::span<const std::byte> data) : name_(std::move(name)), data_(data) {}

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
  void prefetch(std::uint64_t, std::uint64_t) const noexcept override {}

 private:
  std::string name_;
  std::span<const std::byte> data_;
};

}  // namespace forge::runtime

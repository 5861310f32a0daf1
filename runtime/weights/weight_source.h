#pragma once
// Where weights come from, as the runtime sees it: the bytes of files that somebody else opened and checked. The
// runtime knows nothing of model formats; tools connect a loader's files to this.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/error.h"

namespace forge::runtime {

/// Ranged reads of a model's files; `file` is below files(). All methods may be called from several threads at once.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// What it is called in messages.
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual std::uint32_t files() const { return 1; }
  [[nodiscard]] virtual std::uint64_t bytes(std::uint32_t file) const = 0;
  /// All bytes of a file when they lie in memory (it is mapped), else empty: then `read` is the only way.
  [[nodiscard]] virtual std::span<const std::byte> data(std::uint32_t file) const = 0;
  /// Copies [offset, offset + out.size()). Errors: Error(kIo) outside the file or when reading fails.
  virtual void read(std::uint32_t file, std::uint64_t offset, std::span<std::byte> out) const = 0;
  /// Says that a range will be read soon, so that the kernel can fetch it meanwhile. Never fails.
  virtual void prefetch(std::uint32_t file, std::uint64_t offset, std::uint64_t bytes) const noexcept = 0;
};

/// Files in memory that outlive this object.
class SpanWeightSource final : public WeightSource {
 public:
  using File = std::span<const std::byte>;
  SpanWeightSource(std::string name, File file) : SpanWeightSource(std::move(name), std::vector{file}) {}
  SpanWeightSource(std::string name, std::vector<File> files) : name_(std::move(name)), files_(std::move(files)) {}

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] std::uint32_t files() const override { return static_cast<std::uint32_t>(files_.size()); }
  [[nodiscard]] std::uint64_t bytes(std::uint32_t file) const override { return files_[file].size(); }
  [[nodiscard]] File data(std::uint32_t file) const override { return files_[file]; }

  void read(std::uint32_t file, std::uint64_t offset, std::span<std::byte> out) const override {
    const auto data = files_[file];
    if (offset > data.size() || out.size() > data.size() - offset)
      throw Error(ErrorCode::kIo, "cannot read " + printable(name_, 200),
                  std::to_string(out.size()) + " bytes at " + std::to_string(offset) + " of file " +
                      std::to_string(file) + " are not in its " + std::to_string(data.size()),
                  "the model may have changed since the plan was made: compile it again");
    if (!out.empty()) std::memcpy(out.data(), data.data() + offset, out.size());
  }
  void prefetch(std::uint32_t, std::uint64_t, std::uint64_t) const noexcept override {}

 private:
  std::string name_;
  std::vector<File> files_;
};

}  // namespace forge::runtime

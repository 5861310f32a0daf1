#pragma once
// WeightSource is the runtime's view of a model's files: bytes at offsets. The files are opened and checked elsewhere;
// the runtime knows no model format. Implemented over GGUF files in session/ and over memory below.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/error.h"

namespace forge::runtime {

/// Random access to a model's files. Files are numbered from 0 to files() - 1. All methods are thread-safe.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// Name for error messages.
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual std::uint32_t files() const { return 1; }
  [[nodiscard]] virtual std::uint64_t bytes(std::uint32_t file) const = 0;
  /// The whole file if it is mapped into memory, otherwise empty (then only `read` works).
  [[nodiscard]] virtual std::span<const std::byte> data(std::uint32_t file) const = 0;
  /// Copies [offset, offset + out.size()). Errors: Error(kIo) outside the file or when reading fails.
  virtual void read(std::uint32_t file, std::uint64_t offset, std::span<std::byte> out) const = 0;
  /// Hints that a range will be read soon, so that the kernel can fetch it ahead. Never fails.
  virtual void prefetch(std::uint32_t file, std::uint64_t offset, std::uint64_t bytes) const noexcept = 0;
};

/// A WeightSource over byte spans, which must outlive it.
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
                  "the model may have changed since it was compiled: compile it again");
    if (!out.empty()) std::memcpy(out.data(), data.data() + offset, out.size());
  }
  void prefetch(std::uint32_t, std::uint64_t, std::uint64_t) const noexcept override {}

 private:
  std::string name_;
  std::vector<File> files_;
};

}  // namespace forge::runtime

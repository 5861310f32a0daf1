#pragma once
// Writes small GGUF files (version 3, little-endian; ggml/docs/gguf.md) for tests. Independent of the reader.
//
//   GgufWriter w("llama");
//   w.add("llama.block_count", 2u).add("general.name", "tiny").add("tokenizer.ggml.tokens", {"a", "b"});
//   w.add_f32("token_embd.weight", {64, 100}, values);                     // dims innermost first, as in the file
//   w.add_tensor("output.weight", {64, 100}, DType::kQ8_0, block_bytes);
//   w.write(path);                                                         // or w.bytes()

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/quant/dtype.h"

namespace forge::tests {

class GgufWriter {
 public:
  GgufWriter() = default;
  /// Writes general.architecture first.
  explicit GgufWriter(std::string_view architecture) { add("general.architecture", architecture); }

  std::uint32_t version = 3;
  /// Alignment of tensor data; also written as general.alignment if it is not the default.
  std::uint32_t alignment = 32;

  /// Scalars: the C++ type decides the GGUF type (2u -> u32, 2 -> i32, 1e-5F -> f32, true -> bool, ...).
  template <class T>
    requires std::is_arithmetic_v<T>
  GgufWriter& add(std::string_view key, T value) {
    return entry(key, type_of<T>(), raw(value));
  }
  /// Text. A list in braces does not match this overload, because T cannot be deduced from it.
  template <class T>
    requires std::convertible_to<const T&, std::string_view>
  GgufWriter& add(std::string_view key, const T& text) {
    return entry(key, kString, string(std::string_view(text)));
  }
  GgufWriter& add(std::string_view key, std::initializer_list<std::string_view> texts) {
    return add_strings(key, texts);
  }
  GgufWriter& add(std::string_view key, const std::vector<std::string>& texts) { return add_strings(key, texts); }
  template <class T>
    requires std::is_arithmetic_v<T>
  GgufWriter& add(std::string_view key, const std::vector<T>& values) {
    std::string body = raw(type_of<T>()) + raw(std::uint64_t{values.size()});
    for (const T value : values) body += raw(value);
    return entry(key, kArray, body);
  }
  /// A metadata entry of any type number and any bytes: for values that the calls above cannot express, and for damage.
  GgufWriter& entry(std::string_view key, std::uint32_t type, std::string_view body) {
    entries_ += string(key) + raw(type) + std::string(body);
    ++entry_count_;
    return *this;
  }

  /// Adds a tensor. `dims` are innermost first; data is padded to the alignment.
  GgufWriter& add_tensor(std::string_view name, const std::vector<std::int64_t>& dims, DType dtype,
                         std::span<const std::byte> bytes) {
    std::size_t size = row_bytes(dtype, static_cast<std::size_t>(dims.at(0)));
    for (std::size_t d = 1; d < dims.size(); ++d) size *= static_cast<std::size_t>(dims[d]);
    if (size != bytes.size()) throw std::invalid_argument("tensor " + std::string(name) + " has the wrong size");
    add_tensor_row(name, dims, static_cast<std::uint32_t>(dtype), data_.size());
    data_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    data_.resize(align(data_.size()));
    return *this;
  }
  GgufWriter& add_f32(std::string_view name, const std::vector<std::int64_t>& dims, std::span<const float> values) {
    return add_tensor(name, dims, DType::kF32, std::as_bytes(values));
  }
  /// Adds only a row of the tensor table, without data, with any type number and any offset.
  GgufWriter& add_tensor_row(std::string_view name, const std::vector<std::int64_t>& dims, std::uint32_t type,
                             std::uint64_t offset) {
    tensors_ += string(name) + raw(static_cast<std::uint32_t>(dims.size()));
    for (const std::int64_t dim : dims) tensors_ += raw(dim);
    tensors_ += raw(type) + raw(offset);
    ++tensor_count_;
    return *this;
  }

  [[nodiscard]] std::string bytes() const {
    std::string head = "GGUF" + raw(version) + raw(tensor_count_);
    if (alignment != 32) {
      head += raw(entry_count_ + 1) + string("general.alignment") + raw(kU32) + raw(alignment);
    } else {
      head += raw(entry_count_);
    }
    head += entries_ + tensors_;
    if (tensor_count_ != 0) head.resize(align(head.size()));
    return head + data_;
  }
  void write(const std::filesystem::path& path) const {
    std::ofstream out(path, std::ios::binary);
    const std::string all = bytes();
    if (!out.write(all.data(), static_cast<std::streamsize>(all.size()))) throw std::runtime_error("cannot write");
  }

  static constexpr std::uint32_t kU32 = 4, kString = 8, kArray = 9;

  /// The little-endian bytes of a number; a string is preceded by its u64 length.
  template <class T>
  static std::string raw(T value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
  }
  static std::string string(std::string_view text) { return raw(std::uint64_t{text.size()}) + std::string(text); }

 private:
  template <class T>
  static constexpr std::uint32_t type_of() {
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, double>) return 12;
    constexpr std::uint32_t kUnsigned = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : sizeof(T) == 4 ? 4 : 10;
    return kUnsigned + (std::is_signed_v<T> ? 1 : 0);
  }
  template <class Texts>
  GgufWriter& add_strings(std::string_view key, const Texts& texts) {
    std::string body = raw(kString) + raw(std::uint64_t{texts.size()});
    for (const auto& text : texts) body += string(text);
    return entry(key, kArray, body);
  }
  [[nodiscard]] std::size_t align(std::size_t size) const { return (size + alignment - 1) / alignment * alignment; }

  std::uint64_t entry_count_ = 0, tensor_count_ = 0;
  std::string entries_, tensors_, data_;
};

}  // namespace forge::tests

#pragma once
// Reader of GGUF model files, versions 2 and 3, little-endian (source: ggml/docs/gguf.md). The header is checked
// completely when a file is opened; afterwards metadata and tensors are read in place from the mapping. Files are not
// trusted: counts, lengths, offsets and names are checked against the bytes that exist before anything is allocated.
// A model may be split into several files (split.h); they are opened together and read as one.
//
//   const Gguf model = Gguf::open("model.gguf");
//   const auto layers = model.require<std::uint32_t>("llama.block_count");
//   const auto base = model.get<float>("llama.rope.freq_base", 10000.0F);
//   const auto kv_heads = model.find_per_layer<std::uint32_t>("llama.attention.head_count_kv", layers);
//   const GgufTensor& embedding = model.tensor("token_embd.weight");  // cols() = hidden size, rows() = vocabulary

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/quant/dtype.h"
#include "loader/gguf/gguf_value.h"
#include "support/os/mapped_file.h"

namespace forge::loader {

/// A tensor of the model. Name and bytes are views into the mapping, valid as long as the Gguf.
struct GgufTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  std::uint32_t rank = 1;                        ///< 1 to 4
  std::array<std::int64_t, 4> dims{1, 1, 1, 1};  ///< GGUF order: innermost first; positive; 1 from `rank` on
  std::uint64_t offset = 0;                      ///< of the first byte, from the start of its file
  std::span<const std::byte> data;               ///< the rows, each row_bytes(dtype, cols()) long, without padding
  std::uint32_t file = 0;                        ///< index in Gguf::files()
  std::string_view file_name;                    ///< of a split model's part; empty in a model of one file

  [[nodiscard]] std::int64_t cols() const { return dims[0]; }  ///< elements of the innermost dimension
  [[nodiscard]] std::int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  [[nodiscard]] std::int64_t elems() const { return cols() * rows(); }
  [[nodiscard]] std::uint64_t bytes() const { return data.size(); }
  /// "'output.weight' q8_0 [576, 49152]", and " in m-00002-of-00003.gguf" if the model is split.
  [[nodiscard]] std::string describe() const;
};

/// A metadata entry.
struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

/// Identity of a model: XXH3-128 of header, metadata and tensor table, but not of the weights; of a split model,
/// XXH3-128 of its files' identities (low half first, little-endian). A plan fits all models with the same identity.
struct GgufIdentity {
  std::uint64_t low = 0, high = 0;
  bool operator==(const GgufIdentity&) const = default;
  [[nodiscard]] std::string hex() const;  ///< 32 digits, high half first
};

/// One file of a model. The offsets of its tensors count from its own start.
struct GgufFile {
  std::string name;            ///< without its folder; empty for unnamed bytes
  std::filesystem::path path;  ///< as given to open, in that folder; empty for bytes in memory
  MappedFile mapping;          ///< empty for bytes in memory
  std::span<const std::byte> bytes;
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  std::uint64_t data_offset = 0;   ///< start of the tensor data
  std::uint64_t header_bytes = 0;  ///< header, metadata and tensor table
  [[nodiscard]] GgufIdentity identity() const;
};

/// Bytes of a model file in memory, which must outlive the Gguf made of them.
struct GgufImage {
  std::string name;
  std::span<const std::byte> bytes;
};

/// An opened and checked model of one or more GGUF files. Move-only; owns the mappings.
class Gguf {
 public:
  /// Maps and checks the file, and the other parts of a split model, which are found by their names beside it. `path`
  /// may be any part. Errors: kIo (cannot be read), kModelFormat (not a GGUF file, truncated, self-contradictory; a
  /// part that is missing or does not belong to the others), kModelUnsupported (version 1, big-endian, unknown tensor
  /// type).
  static Gguf open(const std::filesystem::path& path);
  /// The same for bytes that must outlive the result (tests, fuzzing): a model of one file, or all parts of one in
  /// order.
  static Gguf from(std::span<const std::byte> bytes);
  static Gguf from(std::span<const GgufImage> images);

  Gguf(Gguf&&) noexcept = default;
  Gguf& operator=(Gguf&&) noexcept = default;

  /// In order; at least one.
  [[nodiscard]] std::span<const GgufFile> files() const { return files_; }
  [[nodiscard]] bool is_split() const { return files_.size() > 1; }
  [[nodiscard]] const std::filesystem::path& path() const { return files_.front().path; }  ///< of the first file
  /// The model's name as its files have it: that of the first without extension and without its number as a part.
  [[nodiscard]] std::string stem() const;
  [[nodiscard]] std::uint64_t bytes() const;  ///< size of all files
  [[nodiscard]] GgufIdentity identity() const;
  /// Changes when the contents of a file may have changed: MappedFile::stamp of each, a line a file.
  [[nodiscard]] std::string stamp() const;

  /// In file order; of the first file of a split model.
  [[nodiscard]] std::span<const GgufEntry> metadata() const { return entries_; }
  /// In file order, those of the first file first.
  [[nodiscard]] std::span<const GgufTensor> tensors() const { return tensors_; }

  [[nodiscard]] bool has(std::string_view key) const { return find_value(key) != nullptr; }
  [[nodiscard]] const GgufValue* find_value(std::string_view key) const;  ///< nullptr if absent
  /// find_tensor returns nullptr if the tensor is absent; tensor() throws kModelFormat with its name.
  [[nodiscard]] const GgufTensor* find_tensor(std::string_view name) const;
  [[nodiscard]] const GgufTensor& tensor(std::string_view name) const;

  /// The value of a key as T: bool, an integer (of any width in the file, if the value fits), float, double,
  /// std::string_view, std::string, GgufStrings, or std::vector of numbers or bools. nullopt if the key is absent.
  /// Throws kModelFormat if the value has another type; the error names the key, its value and the expected type.
  template <class T>
  [[nodiscard]] std::optional<T> find(std::string_view key) const;
  /// As `find`, but an absent key is kModelFormat too.
  template <class T>
  [[nodiscard]] T require(std::string_view key) const;
  /// As `find`, with `fallback` for an absent key.
  template <class T>
  [[nodiscard]] T get(std::string_view key, T fallback) const {
    return find<T>(key).value_or(std::move(fallback));
  }
  /// One value for each layer, from a key that some files give once and others as an array. A single value is repeated;
  /// a longer array is cut to `layers` values. nullopt if absent; throws kModelFormat if the array is too short.
  template <class T>
  [[nodiscard]] std::optional<std::vector<T>> find_per_layer(std::string_view key, std::size_t layers) const;

 private:
  Gguf() = default;
  static Gguf read(GgufFile file);
  static Gguf join(std::vector<Gguf> parts);
  void parse();
  [[noreturn]] static void wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted);
  [[noreturn]] static void missing(std::string_view key, std::string_view wanted);
  template <class T>
  static std::optional<T> convert(const GgufValue& value);
  template <class T>
  static constexpr std::string_view wanted_name();

  std::vector<GgufFile> files_;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::uint32_t> entry_order_, tensor_order_;  // sorted by name, for binary search
};

// ---- templates ----

namespace detail {
template <class T>
struct VectorElement {};
template <class T>
struct VectorElement<std::vector<T>> {
  using type = T;
};
template <class T>
concept NumberVector = requires { typename VectorElement<T>::type; };
}  // namespace detail

template <class T>
constexpr std::string_view Gguf::wanted_name() {
  if constexpr (std::same_as<T, bool>) {
    return "a bool";
  } else if constexpr (std::integral<T>) {
    constexpr std::array<std::string_view, 8> kNames{"an i8 integer",  "a u8 integer",   "an i16 integer",
                                                     "a u16 integer",  "an i32 integer", "a u32 integer",
                                                     "an i64 integer", "a u64 integer"};
    constexpr std::size_t kWidth = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return kNames[2 * kWidth + (std::is_unsigned_v<T> ? 1 : 0)];
  } else if constexpr (std::floating_point<T>) {
    return "a number";
  } else if constexpr (std::same_as<T, GgufStrings>) {
    return "an array of strings";
  } else if constexpr (detail::NumberVector<T>) {
    return "an array of numbers";
  } else {
    return "a string";
  }
}

template <class T>
std::optional<T> Gguf::convert(const GgufValue& value) {
  if constexpr (std::same_as<T, bool>) {
    return value.to_bool();
  } else if constexpr (std::unsigned_integral<T>) {
    const auto wide = value.type == GgufType::kBool ? std::nullopt : value.to_u64();
    if (!wide || *wide > std::numeric_limits<T>::max()) return std::nullopt;
    return static_cast<T>(*wide);
  } else if constexpr (std::signed_integral<T>) {
    const auto wide = value.type == GgufType::kBool ? std::nullopt : value.to_i64();
    if (!wide || !std::in_range<T>(*wide)) return std::nullopt;
    return static_cast<T>(*wide);
  } else if constexpr (std::floating_point<T>) {
    const auto wide = value.to_f64();
    if (!wide) return std::nullopt;
    return static_cast<T>(*wide);
  } else if constexpr (std::same_as<T, GgufStrings>) {
    return value.to_strings();
  } else if constexpr (detail::NumberVector<T>) {
    if (!value.is_array() || gguf_type_bytes(value.element) == 0) return std::nullopt;
    T out;
    out.reserve(value.count);  // at most one element a byte of the file
    for (std::uint64_t i = 0; i < value.count; ++i) {
      const auto one = convert<typename detail::VectorElement<T>::type>(value.element_at(i));
      if (!one) return std::nullopt;
      out.push_back(*one);
    }
    return out;
  } else {
    static_assert(std::same_as<T, std::string_view> || std::same_as<T, std::string>, "no GGUF value is of this type");
    const auto text = value.to_string();
    if (!text) return std::nullopt;
    return T(*text);
  }
}

template <class T>
std::optional<T> Gguf::find(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  auto result = convert<T>(*value);
  if (!result) wrong_type(key, *value, wanted_name<T>());
  return result;
}

template <class T>
T Gguf::require(std::string_view key) const {
  auto result = find<T>(key);
  if (!result) missing(key, wanted_name<T>());
  return *std::move(result);
}

template <class T>
std::optional<std::vector<T>> Gguf::find_per_layer(std::string_view key, std::size_t layers) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) return std::vector<T>(layers, *find<T>(key));
  auto list = *find<std::vector<T>>(key);
  if (list.size() < layers) wrong_type(key, *value, "one value a layer, " + std::to_string(layers) + " of them");
  list.resize(layers);
  return list;
}

}  // namespace forge::loader

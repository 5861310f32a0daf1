#pragma once
// Metadata values of a GGUF file, as views into the file that have been checked: scalars are decoded on access, arrays
// are iterated in place, and strings are not copied. An array of strings costs no memory until index() is called.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace forge::loader {

/// The numbers are those of the GGUF specification (ggml/docs/gguf.md, gguf_metadata_value_type).
enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "u32", "string", ...
[[nodiscard]] std::string_view gguf_type_name(GgufType type);
/// Bytes of a scalar of that type; 0 for strings and arrays, whose length varies.
[[nodiscard]] std::size_t gguf_type_bytes(GgufType type);

/// The strings of an array, in file order: an input range of views into the file, cheap to copy. In the file each
/// string is a u64 length followed by its bytes, so only iteration is possible without an index:
///   | 5 | h e l l o | 2 | h i | ...
class GgufStrings {
 public:
  class Iterator {
   public:
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    using reference = std::string_view;
    using pointer = void;
    Iterator() = default;
    Iterator(const std::byte* at, std::uint64_t left) : at_(at), left_(left) {}
    std::string_view operator*() const { return {reinterpret_cast<const char*>(at_) + 8, length()}; }
    Iterator& operator++() {
      at_ += 8 + length();
      --left_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const { return left_ == other.left_; }

   private:
    [[nodiscard]] std::uint64_t length() const {
      std::uint64_t n = 0;
      std::memcpy(&n, at_, sizeof n);
      return n;
    }
    const std::byte* at_ = nullptr;
    std::uint64_t left_ = 0;
  };

  GgufStrings() = default;
  GgufStrings(const std::byte* first, std::uint64_t count) : first_(first), count_(count) {}
  [[nodiscard]] std::uint64_t size() const { return count_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] Iterator begin() const { return {first_, count_}; }
  [[nodiscard]] Iterator end() const { return {nullptr, 0}; }
  /// All strings as views, for random access; O(size()).
  [[nodiscard]] std::vector<std::string_view> index() const;

 private:
  const std::byte* first_ = nullptr;  // length prefix of the first string; all lengths have been checked
  std::uint64_t count_ = 0;
};

/// A value. Only the GGUF reader creates values, after checking that they lie inside the file.
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  ///< type of an array's elements; for all others the same as `type`
  std::uint64_t count = 0;           ///< number of an array's elements
  std::span<const std::byte> bytes;  ///< the scalar, the string without its length, or an array's elements as stored

  [[nodiscard]] bool is_array() const { return type == GgufType::kArray; }
  /// An integer of any width, or a bool, as 64 bits; nullopt for other types and values that do not fit.
  [[nodiscard]] std::optional<std::int64_t> to_i64() const;
  [[nodiscard]] std::optional<std::uint64_t> to_u64() const;
  /// A float of any width, or an integer (exact up to 2^53); nullopt for other types.
  [[nodiscard]] std::optional<double> to_f64() const;
  // The following return nullopt for values of another type.
  [[nodiscard]] std::optional<bool> to_bool() const;
  [[nodiscard]] std::optional<std::string_view> to_string() const;
  [[nodiscard]] std::optional<GgufStrings> to_strings() const;
  /// Element `i` of an array of scalars, in O(1). Precondition: i < count.
  [[nodiscard]] GgufValue element_at(std::uint64_t i) const;
  /// The elements of any array as values, in order; O(size of the array). Empty if this is not an array.
  [[nodiscard]] std::vector<GgufValue> elements() const;
  /// A short description for messages: "u32 30", "string 'llama'", "array of 49152 strings".
  [[nodiscard]] std::string describe() const;
};

}  // namespace forge::loader

// The GGUF reader. The whole header (metadata and tensor table) of a file is parsed and checked once, when it is
// opened; values and tensors then are views into the file. What the files of a split model must have in common is in
// split.cc.

#include "loader/gguf/gguf.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <ranges>

#include "loader/gguf/split.h"
#include "support/error.h"

namespace forge::loader {
namespace {

constexpr std::uint64_t kKeyBytesMax = 65535;      // limit of the specification
constexpr std::uint64_t kTensorNameBytesMax = 64;  // limit of the specification
constexpr std::uint64_t kAlignmentMin = 8;
constexpr int kNestingMax = 8;  // arrays in arrays; no known file nests deeper than 1
// Minimum bytes of a metadata entry: key length, one character, type, one byte of value. A stated count of entries that
// the rest of the file cannot hold is refused before any is read.
constexpr std::uint64_t kEntryBytesMin = 8 + 1 + 4 + 1;
// Minimum bytes of a tensor's entry: name length, one character, rank, one dimension, type, offset.
constexpr std::uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;
constexpr const char* kDamaged = "the file is damaged; download or convert it again";

[[noreturn]] void damaged(std::string what, std::string why) {
  throw Error(ErrorCode::kModelFormat, std::move(what), std::move(why), kDamaged);
}

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

/// Reads forward through the header. Every read is checked against the bytes left and throws kModelFormat if the file
/// ends too early; `what` names the thing that is read in that message.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] std::uint64_t at() const { return at_; }
  [[nodiscard]] std::uint64_t left() const { return bytes_.size() - at_; }

  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }

  std::string_view string(std::string_view what) {
    const auto length = number<std::uint64_t>(what);
    const auto text = take(length, what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  std::span<const std::byte> take(std::uint64_t bytes, std::string_view what) {
    if (bytes > left()) [[unlikely]]
      damaged(fmt::format("the file ends inside {}", what),
              fmt::format("{} bytes needed at offset {}, {} left", bytes, at_, left()));
    const auto part = bytes_.subspan(at_, bytes);
    at_ += bytes;
    return part;
  }

  /// Skips `count` strings and returns the bytes that they occupy. Reads only their lengths. The loop keeps its
  /// position in a local variable; take() is called only to throw the error of a file that ends too early.
  std::span<const std::byte> strings(std::uint64_t count, std::string_view what) {
    const std::uint64_t begin = at_;
    const std::byte* const base = bytes_.data();
    const std::uint64_t size = bytes_.size();
    std::uint64_t at = at_;
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t length = 0;
      if (size - at < sizeof length) {
        at_ = at;
        take(sizeof length, what);
      }
      std::memcpy(&length, base + at, sizeof length);
      at += sizeof length;
      if (size - at < length) {
        at_ = at;
        take(length, what);
      }
      at += length;
    }
    at_ = at;
    return bytes_.subspan(begin, at - begin);
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
};

GgufType value_type(Cursor& cursor, std::string_view what) {
  const auto number = cursor.number<std::uint32_t>(what);
  if (number > static_cast<std::uint32_t>(GgufType::kF64))
    damaged(fmt::format("{} has the unknown value type {}", what, number), "GGUF defines the types 0 to 12");
  return static_cast<GgufType>(number);
}

void check_bools(std::span<const std::byte> bytes, std::string_view what) {
  if (std::ranges::any_of(bytes, [](std::byte b) { return b > std::byte{1}; }))
    damaged(fmt::format("{} holds a bool that is neither 0 nor 1", what), "");
}

/// Reads and checks one value. Layout of an array: u32 element type, u64 count, elements; of a string: u64 length,
/// bytes. An array of arrays is walked once here, so that elements() may read it later without checks.
GgufValue read_value(Cursor& cursor, GgufType type, std::string_view what, int depth) {
  GgufValue value{type, type, 0, {}};
  if (type == GgufType::kString) {
    const auto text = cursor.string(what);
    value.bytes = std::as_bytes(std::span(text));
    return value;
  }
  if (type != GgufType::kArray) {
    value.bytes = cursor.take(gguf_type_bytes(type), what);
    if (type == GgufType::kBool) check_bools(value.bytes, what);
    return value;
  }
  if (depth >= kNestingMax) damaged(fmt::format("{} nests arrays deeper than {} levels", what, kNestingMax), "");
  value.element = value_type(cursor, what);
  value.count = cursor.number<std::uint64_t>(what);
  const std::size_t width = gguf_type_bytes(value.element);
  const std::uint64_t least = value.element == GgufType::kString ? 8 : value.element == GgufType::kArray ? 12 : width;
  if (value.count > cursor.left() / least)
    damaged(fmt::format("{} states {} elements", what, value.count),
            fmt::format("only {} bytes of the file are left", cursor.left()));
  if (value.element == GgufType::kString) {
    value.bytes = cursor.strings(value.count, what);
  } else if (width != 0) {
    value.bytes = cursor.take(value.count * width, what);
    if (value.element == GgufType::kBool) check_bools(value.bytes, what);
  } else {
    const Cursor before = cursor;
    for (std::uint64_t i = 0; i < value.count; ++i) read_value(cursor, GgufType::kArray, what, depth + 1);
    value.bytes = Cursor(before).take(cursor.at() - before.at(), what);
  }
  return value;
}

/// A description of files that users often pass by mistake, recognised by their first bytes; empty for all others.
std::string_view name_of_other_format(std::string_view head) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kOthers{{
      {"version https://git-lfs", "a Git LFS pointer, not the model itself; fetch it with 'git lfs pull'"},
      {"tjgg", "a GGJT file, GGUF's predecessor"},
      {"lmgg", "a GGML file, GGUF's predecessor"},
      {"fmgg", "a GGMF file, GGUF's predecessor"},
      {"algg", "a GGLA adapter file, GGUF's predecessor"},
      {"PK\x03\x04", "a ZIP archive (a PyTorch checkpoint or a Python wheel)"},
      {"\x1f\x8b", "gzip-compressed; unpack it first"},
      {"\xfd"
       "7zXZ",
       "xz-compressed; unpack it first"},
      {"<", "an HTML or XML page, so the download went wrong"},
  }};
  for (const auto& [start, name] : kOthers)
    if (head.starts_with(start)) return name;
  if (head.size() > 8 && head[8] == '{') return "a safetensors file; convert it to GGUF";
  return {};
}

std::uint32_t read_version(Cursor& cursor, std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 32));
  if (!head.starts_with("GGUF")) {
    const auto other = name_of_other_format(head);
    throw Error(ErrorCode::kModelFormat, "not a GGUF file",
                other.empty() ? fmt::format("it begins with '{}', not 'GGUF'", printable(head.substr(0, 8)))
                              : fmt::format("it is {}", other),
                "pass a .gguf model");
  }
  cursor.take(4, "the magic");
  const auto version = cursor.number<std::uint32_t>("the version");
  const auto refuse = [](std::string why) {
    throw Error(ErrorCode::kModelUnsupported, "cannot read this kind of GGUF file", std::move(why),
                "convert the model again with a current converter (little-endian)");
  };
  if (version == 1) refuse("it is GGUF version 1, which was replaced in 2023");
  if (version != 0 && (version & 0xFFFF) == 0)
    refuse(fmt::format("it is big-endian (version {})", std::byteswap(version)));
  if (version != 2 && version != 3) refuse(fmt::format("it is GGUF version {}; forge reads 2 and 3", version));
  return version;
}

DType tensor_dtype(std::uint32_t number, std::string_view name) {
  const DTypeInfo* info = number < static_cast<std::uint32_t>(DType::kQ8A_32) ? find_dtype(number) : nullptr;
  if (info != nullptr) return info->type;
  // Type numbers that GGUF no longer uses: 4-5 q4_2, q4_3; 31-33 q4_0_4_4 etc.; 36-38 iq4_nl_4_4 etc.
  const bool withdrawn = number == 4 || number == 5 || (number >= 31 && number <= 33) || (number >= 36 && number <= 38);
  throw Error(ErrorCode::kModelUnsupported,
              fmt::format("tensor '{}' has the unknown element type {}", printable(name), number),
              withdrawn ? "that type was withdrawn from GGUF" : "forge has no type of that number",
              "use a file quantised to a supported type, such as q8_0 or q4_1");
}

GgufTensor read_tensor(Cursor& cursor, std::uint64_t number, std::uint64_t& relative_offset) {
  GgufTensor tensor;
  tensor.name = cursor.string(fmt::format("the name of tensor {}", number));
  if (tensor.name.empty() || tensor.name.size() > kTensorNameBytesMax)
    damaged(fmt::format("tensor {} has a name of {} bytes", number, tensor.name.size()),
            fmt::format("1 to {} are allowed", kTensorNameBytesMax));
  const auto what = fmt::format("tensor '{}'", printable(tensor.name));
  tensor.rank = cursor.number<std::uint32_t>(what);
  if (tensor.rank < 1 || tensor.rank > 4)
    damaged(fmt::format("{} has {} dimensions", what, tensor.rank), "1 to 4 are allowed");
  std::uint64_t elems = 1;
  for (std::uint32_t d = 0; d < tensor.rank; ++d) {
    const auto dim = cursor.number<std::uint64_t>(what);
    // No type takes more than 8 bytes an element, so the size in bytes cannot overflow either.
    constexpr std::uint64_t kElemsMax = std::numeric_limits<std::int64_t>::max() / 8;
    if (dim == 0 || dim > kElemsMax / elems)
      damaged(fmt::format("{} has the dimension {}", what, dim),
              dim == 0 ? "it has no elements" : "the size overflows");
    elems *= dim;
    tensor.dims.at(d) = static_cast<std::int64_t>(dim);
  }
  tensor.dtype = tensor_dtype(cursor.number<std::uint32_t>(what), tensor.name);
  relative_offset = cursor.number<std::uint64_t>(what);
  const auto& info = dtype_info(tensor.dtype);
  if (tensor.cols() % info.block_elems != 0)
    damaged(fmt::format("{} has rows of {} elements", what, tensor.cols()),
            fmt::format("{} packs {} elements a block, so a row is a multiple of that", info.name, info.block_elems));
  return tensor;
}

/// Sets the tensor's offset and bytes after checking that they are aligned and inside the file. `relative` is its
/// offset from the start of the data section.
void place_tensor(GgufTensor& tensor, std::uint64_t relative, std::uint64_t data_offset, std::uint64_t alignment,
                  std::span<const std::byte> file) {
  const auto what = fmt::format("tensor '{}'", printable(tensor.name));
  if (relative % alignment != 0)
    damaged(fmt::format("{} begins at offset {}", what, relative), fmt::format("not a multiple of {}", alignment));
  const std::uint64_t size =
      static_cast<std::uint64_t>(tensor.rows()) * row_bytes(tensor.dtype, static_cast<std::size_t>(tensor.cols()));
  const std::uint64_t room = file.size() > data_offset ? file.size() - data_offset : 0;
  if (relative > room || size > room - relative)
    damaged(fmt::format("{} reaches past the end of the file", what),
            fmt::format("{} bytes at offset {} of a data section of {} bytes", size, relative, room));
  tensor.offset = data_offset + relative;
  tensor.data = file.subspan(tensor.offset, size);
}

/// Throws if two tensors share a byte: sorted by offset, each must end before the next begins.
void check_overlap(std::span<const GgufTensor> tensors) {
  std::vector<const GgufTensor*> by_offset(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) by_offset[i] = &tensors[i];
  std::ranges::sort(by_offset, {}, &GgufTensor::offset);
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor &before = *by_offset[i - 1], &after = *by_offset[i];
    if (before.offset + before.bytes() > after.offset)
      damaged(fmt::format("tensors '{}' and '{}' overlap", printable(before.name), printable(after.name)),
              fmt::format("both hold byte {} of the file", after.offset));
  }
}

/// Indices of the entries sorted by name, for binary search. Throws if two names are equal.
template <class Range, class Name>
std::vector<std::uint32_t> order_by_name(const Range& range, Name name, std::string_view kind) {
  std::vector<std::uint32_t> order(range.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](std::uint32_t i) { return range[i].*name; });
  const auto twin = std::ranges::adjacent_find(order, {}, [&](std::uint32_t i) { return range[i].*name; });
  if (twin != order.end()) damaged(fmt::format("{} '{}' occurs twice", kind, printable(range[*twin].*name)), "");
  return order;
}

template <class Range, class Name>
auto* find_by_name(const Range& range, const std::vector<std::uint32_t>& order, Name name, std::string_view wanted) {
  const auto at = std::ranges::lower_bound(order, wanted, {}, [&](std::uint32_t i) { return range[i].*name; });
  return at != order.end() && range[*at].*name == wanted ? &range[*at] : nullptr;
}

}  // namespace

std::string GgufTensor::describe() const {
  std::string shape;
  for (std::uint32_t d = 0; d < rank; ++d) shape += fmt::format("{}{}", d == 0 ? "" : ", ", dims.at(d));
  return fmt::format("'{}' {} [{}]{}{}", printable(name), dtype_name(dtype), shape, file_name.empty() ? "" : " in ",
                     printable(file_name, 200));
}

std::string GgufIdentity::hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

namespace {

GgufFile map_file(const std::filesystem::path& path) {
  GgufFile file{.name = path.filename().native(), .path = path, .mapping = MappedFile::open(path), .bytes = {}};
  file.bytes = file.mapping.bytes();
  return file;
}

}  // namespace

/// A file by itself. Errors say which one is read.
Gguf Gguf::read(GgufFile file) {
  Gguf gguf;
  gguf.files_.push_back(std::move(file));
  within_file(gguf.files_.front(), [&] { gguf.parse(); });
  return gguf;
}

Gguf Gguf::open(const std::filesystem::path& path) {
  Gguf opened = read(map_file(path));
  const auto paths = within_file(opened.files_.front(), [&] { return paths_of_parts(opened); });
  // The part that is open already is not read again.
  std::vector<Gguf> parts;
  for (const auto& part : paths)
    if (part != path) parts.push_back(read(map_file(part)));
  const auto own = std::ranges::find(paths, path) - paths.begin();
  parts.insert(parts.begin() + own, std::move(opened));
  return join(std::move(parts));
}

Gguf Gguf::from(std::span<const std::byte> bytes) {
  const GgufImage image{.name = {}, .bytes = bytes};
  return from(std::span(&image, 1));
}

Gguf Gguf::from(std::span<const GgufImage> images) {
  std::vector<Gguf> parts;
  for (const auto& image : images)
    parts.push_back(read({.name = image.name, .path = {}, .mapping = {}, .bytes = image.bytes}));
  return join(std::move(parts));
}

/// One model of its parts, in order.
Gguf Gguf::join(std::vector<Gguf> parts) {
  check_parts(parts);
  Gguf model = std::move(parts.front());
  if (parts.size() == 1) return model;
  for (auto& part : std::span(parts).subspan(1)) {
    for (auto& tensor : part.tensors_) {
      tensor.file = static_cast<std::uint32_t>(model.files_.size());
      model.tensors_.push_back(tensor);
    }
    model.files_.push_back(std::move(part.files_.front()));
  }
  for (auto& tensor : model.tensors_) tensor.file_name = model.files_[tensor.file].name;
  model.tensor_order_ = order_by_name(model.tensors_, &GgufTensor::name, "tensor");
  return model;
}

/// File layout: magic "GGUF", u32 version, u64 tensor count, u64 metadata count, metadata, tensor table, padding to the
/// alignment, tensor data.
void Gguf::parse() {
  auto& file = files_.front();
  Cursor cursor(file.bytes);
  file.version = read_version(cursor, file.bytes);
  const auto tensor_count = cursor.number<std::uint64_t>("the tensor count");
  const auto entry_count = cursor.number<std::uint64_t>("the metadata count");
  const auto check_count = [&](std::uint64_t count, std::uint64_t bytes_min, std::string_view kind) {
    if (count > cursor.left() / bytes_min || count > std::numeric_limits<std::uint32_t>::max())
      damaged(fmt::format("the header states {} {}", count, kind),
              fmt::format("only {} bytes of the file are left", cursor.left()));
  };
  check_count(entry_count, kEntryBytesMin, "metadata entries");
  check_count(tensor_count, kTensorBytesMin, "tensors");

  // The vectors grow as entries are read: a count stated in a hostile file never sizes an allocation.
  for (std::uint64_t i = 0; i < entry_count; ++i) {
    const auto key = cursor.string(fmt::format("metadata key {}", i));
    if (key.empty() || key.size() > kKeyBytesMax)
      damaged(fmt::format("metadata key {} has {} bytes", i, key.size()),
              fmt::format("1 to {} are allowed", kKeyBytesMax));
    const auto what = fmt::format("metadata key '{}'", printable(key));
    const auto type = value_type(cursor, what);
    entries_.push_back({key, read_value(cursor, type, what, 0)});
  }
  entry_order_ = order_by_name(entries_, &GgufEntry::key, "metadata key");

  file.alignment = get<std::uint64_t>("general.alignment", 32);
  if (!std::has_single_bit(file.alignment) || file.alignment < kAlignmentMin || file.alignment > file.bytes.size())
    if (has("general.alignment"))
      damaged(fmt::format("general.alignment is {}", file.alignment),
              fmt::format("it must be a power of two from {} to the file's size", kAlignmentMin));

  std::vector<std::uint64_t> relative;
  for (std::uint64_t i = 0; i < tensor_count; ++i) tensors_.push_back(read_tensor(cursor, i, relative.emplace_back()));
  file.header_bytes = cursor.at();
  tensor_order_ = order_by_name(tensors_, &GgufTensor::name, "tensor");
  file.data_offset = align_up(file.header_bytes, file.alignment);
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    place_tensor(tensors_[i], relative[i], file.data_offset, file.alignment, file.bytes);
  check_overlap(tensors_);
}

std::string Gguf::stem() const {
  const auto part = PartName::parse(files_.front().name);
  return part ? part->prefix : std::filesystem::path(files_.front().name).stem().native();
}

std::uint64_t Gguf::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& file : files_) sum += file.bytes.size();
  return sum;
}

GgufIdentity GgufFile::identity() const {
  const auto hash = XXH3_128bits(bytes.data(), header_bytes);
  return {hash.low64, hash.high64};
}

GgufIdentity Gguf::identity() const {
  if (!is_split()) return files_.front().identity();
  std::vector<std::uint64_t> halves;
  for (const auto& file : files_) {
    const auto one = file.identity();
    halves.insert(halves.end(), {one.low, one.high});
  }
  const auto hash = XXH3_128bits(halves.data(), halves.size() * sizeof halves[0]);
  return {hash.low64, hash.high64};
}

std::string Gguf::stamp() const {
  std::string text;
  for (const auto& file : files_) text += (text.empty() ? "" : "\n") + file.mapping.stamp();
  return text;
}

const GgufValue* Gguf::find_value(std::string_view key) const {
  const GgufEntry* entry = find_by_name(entries_, entry_order_, &GgufEntry::key, key);
  return entry == nullptr ? nullptr : &entry->value;
}

const GgufTensor* Gguf::find_tensor(std::string_view name) const {
  return find_by_name(tensors_, tensor_order_, &GgufTensor::name, name);
}

const GgufTensor& Gguf::tensor(std::string_view name) const {
  const GgufTensor* found = find_tensor(name);
  if (found == nullptr)
    throw Error(ErrorCode::kModelFormat, fmt::format("tensor '{}' is missing", printable(name)),
                fmt::format("the model has {} tensors, none of that name", tensors_.size()),
                "convert the model again with a current converter");
  return *found;
}

void Gguf::wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted) {
  throw Error(ErrorCode::kModelFormat, fmt::format("metadata key '{}' holds {}", printable(key), value.describe()),
              fmt::format("{} is expected", wanted), "convert the model again with a current converter");
}

void Gguf::missing(std::string_view key, std::string_view wanted) {
  throw Error(ErrorCode::kModelFormat, fmt::format("metadata key '{}' is missing", printable(key)),
              fmt::format("{} is expected", wanted), "convert the model again with a current converter");
}

}  // namespace forge::loader

#include "loader/gguf/split.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace forge::loader {
namespace {

constexpr std::string_view kIndexKey = "split.no", kCountKey = "split.count", kTensorsKey = "split.tensors.count";
constexpr const char* kFetch = "fetch all parts of the model again from one place";

/// What a part says of its place in the model.
struct PartPlace {
  std::uint32_t index = 0;  ///< from 0
  std::uint32_t count = 1;
  std::uint32_t tensors = 0;  ///< of all parts
};

/// nullopt: the file is a whole model.
std::optional<PartPlace> place_of(const Gguf& file) {
  const auto count = file.get<std::uint16_t>(kCountKey, 0);
  if (count == 0) return std::nullopt;
  return PartPlace{.index = file.require<std::uint16_t>(kIndexKey),
                   .count = count,
                   .tensors = file.require<std::uint32_t>(kTensorsKey)};
}

std::string name_of(const Gguf& part) {
  const auto files = part.files();
  return files.front().name.empty() ? std::string("the file") : printable(files.front().name, 200);
}

[[noreturn]] void refuse(std::string what, std::string why, const char* fix = kFetch) {
  throw Error(ErrorCode::kModelFormat, std::move(what), std::move(why), fix);
}

/// Five decimal digits.
std::optional<std::uint32_t> five_digits(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != 5 || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Number, count and metadata of part `i`.
void check_part(std::span<const Gguf> parts, std::size_t i) {
  const Gguf &part = parts[i], &first = parts.front();
  const auto place = place_of(part);
  const auto expected = fmt::format("part {} of {} is expected", i + 1, parts.size());
  if (!place && parts.size() == 1) return;
  if (!place) refuse(fmt::format("{} is a whole model", name_of(part)), expected);
  if (place->index != i || place->count != parts.size())
    refuse(fmt::format("{} is part {} of {}", name_of(part), place->index + 1, place->count), expected);
  if (i == 0) return;
  if (const auto tensors = place_of(first)->tensors; place->tensors != tensors)
    refuse(fmt::format("{} is a part of another model than {}", name_of(part), name_of(first)),
           fmt::format("{} is {}, and {} there", kTensorsKey, place->tensors, tensors));
  for (const auto& [key, value] : part.metadata()) {
    if (key.starts_with("split.") || key == "general.alignment") continue;
    const auto* other = first.find_value(key);
    const bool same = other != nullptr && other->type == value.type && other->element == value.element &&
                      other->count == value.count && std::ranges::equal(other->bytes, value.bytes);
    if (!same)
      refuse(fmt::format("{} contradicts {}", name_of(part), name_of(first)),
             fmt::format("metadata key '{}' is {}, and {} there", printable(key), printable(value.describe()),
                         other == nullptr ? "missing" : printable(other->describe())));
  }
}

/// Each tensor is in one part, and none is missing.
void check_tensors(std::span<const Gguf> parts) {
  std::map<std::string_view, const Gguf*> holders;
  for (const auto& part : parts)
    for (const auto& tensor : part.tensors()) {
      const auto [found, fresh] = holders.try_emplace(tensor.name, &part);
      if (!fresh)
        refuse(fmt::format("{} holds tensor '{}'", name_of(part), printable(tensor.name)),
               fmt::format("{} holds it too", name_of(*found->second)));
    }
  const auto place = place_of(parts.front());
  if (place && holders.size() != place->tensors)
    refuse(fmt::format("{}{} {} tensors", name_of(parts.front()),
                       parts.size() == 1 ? " has" : " and its other parts have", holders.size()),
           fmt::format("{} is {}", kTensorsKey, place->tensors));
}

/// The roles ("attn_q.weight") and types of a part's quantised or half-precision tensors. F32 is left out: vectors have
/// it in files of every quantisation.
struct WeightTypes {
  std::set<std::string_view> roles;
  std::set<DType> types;
  explicit WeightTypes(const Gguf& part) {
    for (const auto& tensor : part.tensors()) {
      if (tensor.dtype == DType::kF32) continue;
      types.insert(tensor.dtype);
      const auto name = tensor.name;
      if (name.starts_with("blk.") && name.find('.', 4) != std::string_view::npos)
        roles.insert(name.substr(name.find('.', 4) + 1));
    }
  }
};

/// Files do not say which quantisation a part is of, and quantised models mix types, also by layer. A part is refused
/// if it has weights of the same roles as the others but not one of their types: a part of Q8_0 in a model of Q4_K_M.
/// At least two roles, since a part may hold a single tensor whose type no other has.
void check_quantisation(std::span<const Gguf> parts) {
  constexpr std::ptrdiff_t kRolesMin = 2;
  const std::vector<WeightTypes> weights(parts.begin(), parts.end());
  std::map<std::string_view, std::size_t> parts_with_role;
  std::map<DType, std::size_t> parts_with_type;
  for (const auto& part : weights) {
    for (const auto& role : part.roles) ++parts_with_role[role];
    for (const auto type : part.types) ++parts_with_type[type];
  }
  // The first part comes last: of two parts, the one without metadata is named.
  for (std::size_t n = 1; n <= parts.size(); ++n) {
    const auto& part = weights[n % parts.size()];
    const auto shared = std::ranges::count_if(part.roles, [&](auto role) { return parts_with_role.at(role) > 1; });
    if (shared < kRolesMin || std::ranges::any_of(part.types, [&](DType type) { return parts_with_type.at(type) > 1; }))
      continue;
    refuse(fmt::format("{} is quantised differently from the other parts", name_of(parts[n % parts.size()])),
           fmt::format("it has weights of type {}, and they have none", dtype_name(*part.types.begin())));
  }
}

}  // namespace

std::optional<PartName> PartName::parse(std::string_view file_name) {
  constexpr std::string_view kExtension = ".gguf", kOf = "-of-";
  constexpr std::size_t kTail = 1 + 5 + 4 + 5;  // -00002-of-00003
  if (!file_name.ends_with(kExtension)) return std::nullopt;
  file_name.remove_suffix(kExtension.size());
  if (file_name.size() < kTail) return std::nullopt;
  const auto tail = file_name.substr(file_name.size() - kTail);
  const auto number = five_digits(tail.substr(1, 5)), count = five_digits(tail.substr(10));
  if (tail[0] != '-' || tail.substr(6, kOf.size()) != kOf || !number || !count) return std::nullopt;
  return PartName{
      .prefix = std::string(file_name.substr(0, file_name.size() - kTail)), .number = *number, .count = *count};
}

std::string PartName::text() const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

std::vector<std::filesystem::path> paths_of_parts(const Gguf& opened) {
  const auto& path = opened.path();
  const auto place = place_of(opened);
  if (!place || place->count == 1) return {path};
  auto name = PartName::parse(path.filename().native());
  if (!name || name->number != place->index + 1 || name->count != place->count)
    refuse(fmt::format("it is part {} of {} of a model", place->index + 1, place->count),
           fmt::format("its name does not end in {}", PartName{{}, place->index + 1, place->count}.text()),
           "give all parts the names that they were made with, which say where the others are");
  std::vector<std::filesystem::path> paths;
  for (std::uint32_t number = 1; number <= place->count; ++number) {
    if (number == place->index + 1) {
      paths.push_back(path);
      continue;
    }
    name->number = number;
    paths.push_back(path.parent_path() / name->text());
    std::error_code failed;
    if (std::filesystem::status(paths.back(), failed).type() == std::filesystem::file_type::not_found)
      refuse(fmt::format("{} is missing", printable(name->text(), 200)),
             fmt::format("the model has {} parts, and they must lie in one folder", place->count), "fetch that part");
  }
  return paths;
}

void check_parts(std::span<const Gguf> parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) within_file(parts[i].files().front(), [&] { check_part(parts, i); });
  within_file(parts.front().files().front(), [&] {
    check_tensors(parts);
    check_quantisation(parts);
  });
}

}  // namespace forge::loader

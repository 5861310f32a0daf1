#pragma once
// Splits a GGUF file of tests into parts, as converters do: the first part has all metadata, each part the keys
// split.*.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "loader/gguf/gguf.h"
#include "support/error.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"

namespace forge::tests {

/// Metadata of part `index` of `count`, whose model has `tensors` tensors in all.
inline void add_split_keys(GgufWriter& part, std::size_t index, std::size_t count, std::size_t tensors) {
  part.add("split.no", static_cast<std::uint16_t>(index)).add("split.count", static_cast<std::uint16_t>(count));
  part.add("split.tensors.count", static_cast<std::int32_t>(tensors));
}

/// The parts of the file `whole`: the first has `tensors[0]` of its tensors, and so on; the last has the rest too.
inline std::vector<std::string> split_gguf(std::string_view whole, const std::vector<std::size_t>& tensors) {
  const auto model = loader::Gguf::from(std::as_bytes(std::span(whole)));
  std::vector<std::string> parts;
  std::size_t next = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    GgufWriter part;
    if (i > 0) part.alignment = 64;  // a part may have an alignment of its own
    for (const auto& [key, value] : model.metadata()) {
      if (i > 0) break;
      std::string body(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
      if (value.type == loader::GgufType::kString) body = GgufWriter::string(body);
      if (value.is_array()) body = GgufWriter::raw(value.element) + GgufWriter::raw(value.count) + body;
      part.entry(key, static_cast<std::uint32_t>(value.type), body);
    }
    add_split_keys(part, i, tensors.size(), model.tensors().size());
    const auto end = i + 1 == tensors.size() ? model.tensors().size() : next + tensors[i];
    for (; next < end; ++next) {
      const auto& tensor = model.tensors()[next];
      part.add_tensor(tensor.name, {tensor.dims.begin(), tensor.dims.begin() + tensor.rank}, tensor.dtype, tensor.data);
    }
    parts.push_back(part.bytes());
  }
  return parts;
}

/// "m-00002-of-00003.gguf" for the number 2 of 3.
inline std::string part_name(std::size_t number, std::size_t count) {
  const auto digits = [](std::size_t value) {
    const auto text = std::to_string(value);
    return std::string(5 - text.size(), '0') + text;
  };
  return "m-" + digits(number) + "-of-" + digits(count) + ".gguf";
}

/// Writes the parts to `folder` and returns the path of the first.
inline std::filesystem::path write_parts(const TempDir& folder, const std::vector<std::string>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) (void)folder.write(part_name(i + 1, parts.size()), parts[i]);
  return folder.file(part_name(1, parts.size()));
}

}  // namespace forge::tests

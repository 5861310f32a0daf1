// Fuzzes everything that is done with an untrusted GGUF file before a model runs: the reader (loader/gguf/gguf.h), all
// metadata values in all types they can be read as, the tensors' data, the model families and the tokenizers. Only
// forge::Error may be thrown, and views must lie inside the file. Input with kNextPart in it is a model split there.

#include "loader/gguf/gguf.h"

#include "loader/arch/family.h"
#include "tests/fuzz/target.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using forge::loader::Gguf;
namespace fuzz = forge::fuzz;

template <class T>
void ask(const Gguf& file, std::string_view key) {
  fuzz::refuse_or_read([&] { (void)file.find<T>(key); });
}

void read_values(const Gguf& file) {
  for (const auto& [key, value] : file.metadata()) {
    ask<bool>(file, key);
    ask<std::int8_t>(file, key);
    ask<std::uint32_t>(file, key);
    ask<std::int64_t>(file, key);
    ask<float>(file, key);
    ask<std::string>(file, key);
    ask<forge::loader::GgufStrings>(file, key);
    ask<std::vector<std::uint64_t>>(file, key);
    ask<std::vector<float>>(file, key);
    fuzz::refuse_or_read([&] { (void)file.find_per_layer<std::int32_t>(key, 3); });
  }
}

volatile std::uint8_t touched;  // keeps the compiler from removing the reads below

void read_tensors(const Gguf& file) {
  for (const auto& tensor : file.tensors()) {
    fuzz::expect(!tensor.describe().empty() && tensor.elems() > 0, "a tensor without elements");
    fuzz::expect(file.find_tensor(tensor.name) == &tensor, "a tensor is not found by its name");
    if (tensor.data.empty()) continue;
    touched = std::to_integer<std::uint8_t>(tensor.data.front());
    touched = std::to_integer<std::uint8_t>(tensor.data.back());
    const auto own = file.files()[tensor.file].bytes;
    fuzz::expect(tensor.data.data() == own.data() + tensor.offset && tensor.offset + tensor.bytes() <= own.size(),
                 "a tensor is not in its file");
  }
  fuzz::expect(file.identity().hex().size() == 32, "an identity has 32 digits");
}

/// The parts that the input is cut into, as files of the right names.
std::vector<forge::loader::GgufImage> parts_of(std::string_view input) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at != std::string_view::npos;) {
    at = input.find(fuzz::kNextPart);
    parts.push_back(input.substr(0, at));
    if (at != std::string_view::npos) input.remove_prefix(at + fuzz::kNextPart.size());
  }
  std::vector<forge::loader::GgufImage> images;
  for (const auto part : parts)
    images.push_back({"m-0000" + std::to_string(images.size() + 1), std::as_bytes(std::span(part))});
  return images;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::refuse_or_read([&] {
    const Gguf file = Gguf::from(parts_of(fuzz::text_of(data, size)));
    read_values(file);
    read_tensors(file);
    fuzz::refuse_or_read([&] { (void)forge::loader::build_model(file); });
    fuzz::refuse_or_read([&] {
      const auto tokenizer = forge::text::Tokenizer::open(file);
      const auto ids = tokenizer->encode("ab <s> \xc3\xa9\xff", {.add_special = true, .parse_special = true});
      (void)tokenizer->decode(ids, true);
    });
  });
}

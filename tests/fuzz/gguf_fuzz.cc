// Fuzzes everything that is done with an untrusted GGUF file before a model runs: the reader (loader/gguf/gguf.h), all
// metadata values in all types they can be read as, the tensors' data, the model families and the tokenizers. Only
// forge::Error may be thrown, and views must lie inside the file.

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
  }
  fuzz::expect(file.identity().hex().size() == 32, "an identity has 32 digits");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::refuse_or_read([&] {
    const Gguf file = Gguf::from(std::as_bytes(std::span(data, size)));
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

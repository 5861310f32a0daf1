#pragma once
// A byte-level vocabulary (GPT-2's) without merges: a token for each byte, then control tokens.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace forge::tests {

/// A GGUF file with nothing but this tokenizer: byte b is token b, `control` begins at 256, whose first is BOS.
inline std::string byte_vocabulary(const std::vector<std::string>& control, std::uint32_t eos) {
  GgufWriter w("llama");
  std::vector<std::string> tokens;
  for (unsigned byte = 0, spare = 256; byte < 256; ++byte) {
    const bool plain = (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || byte >= 174;
    const unsigned code = plain ? byte : spare++;
    tokens.push_back(
        code < 128 ? std::string(1, static_cast<char>(code))
                   : std::string{static_cast<char>(0xC0U | (code >> 6U)), static_cast<char>(0x80U | (code & 0x3FU))});
  }
  std::vector<std::int32_t> types(tokens.size(), 1);
  tokens.insert(tokens.end(), control.begin(), control.end());
  types.resize(tokens.size(), 3);
  w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-2").add("tokenizer.ggml.tokens", tokens);
  w.add("tokenizer.ggml.merges", std::vector<std::string>{}).add("tokenizer.ggml.add_bos_token", false);
  w.add("tokenizer.ggml.bos_token_id", 256U).add("tokenizer.ggml.eos_token_id", eos);
  return w.add("tokenizer.ggml.token_type", types).bytes();
}

}  // namespace forge::tests

// The table of all pre-tokenizer names. The expressions are in expressions.h.
#include "text/pretokenizer/split.h"

#include "text/pretokenizer/expressions.h"

namespace forge::text {
namespace {

using namespace expressions;

// Columns: name, expressions, ignore_merges, add_bos, spelling. The first row is the default.
constexpr PreTokenizer kPreTokenizers[] = {
    {"default", kDefault},
    {"falcon", kFalcon},
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"jais", kGpt2},
    {"trillion", kGpt2},
    {"granite-docling", kGpt2},
    {"exaone4", kGpt2},
    {"gigachat", kGpt2},
    {"mellum", kGpt2},
    {"a.x-4.0", kGpt2},
    {"modern-bert", kGpt2},
    {"jina-es", kGpt2},
    {"jina-de", kGpt2},
    {"jina-v1-en", kGpt2},
    {"jina-v2-es", kGpt2},
    {"jina-v2-de", kGpt2},
    {"jina-v2-code", kGpt2},
    {"roberta-bpe", kGpt2},
    {"smollm", kSmolLm},
    {"starcoder", kSmolLm},
    {"refact", kSmolLm},
    {"command-r", kSmolLm},
    {"codeshell", kSmolLm},
    {"exaone", kSmolLm},
    {"minerva", kSmolLm},
    {"minerva-7b", kSmolLm},
    {"mellum2", kSmolLm},
    {"llama-bpe", kLlama3, true, true},
    {"llama3", kLlama3, true, true},
    {"llama-v3", kLlama3, true, true},
    {"falcon3", kLlama3, true, true},
    {"falcon-h1", kLlama3, true, true},
    {"pixtral", kLlama3, true, true},
    {"midm-2.0", kLlama3, true, true},
    {"lfm2", kLlama3, true, true},
    {"jina-v5-nano", kLlama3, true, true},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"glm4", kLlama3, true},
    {"glm5", kLlama3, true},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"stablelm2", kQwen2},
    {"megrez", kQwen2},
    {"hunyuan", kQwen2},
    {"solar-open", kQwen2},
    {"grok-2", kQwen2},
    {"kormo", kQwen2},
    {"f2llmv2", kQwen2},
    {"bailingmoe", kQwen2},
    {"bailingmoe2", kQwen2},
    {"llada-moe", kQwen2},
    {"qwen35", kQwen35},
    {"seed-coder", kSeedCoder},
    {"ufakzeka", kUfakzeka},
    {"minicpm5", kMiniCpm5, true},
    {"gpt-4o", kGpt4o},
    {"llama4", kGpt4o},
    {"kanana2", kGpt4o},
    {"minimax-m2", kGpt4o},
    {"talkie", kGpt4o},
    {"tekken", kTekken, true, true},
    {"bloom", kBloom},
    {"poro-chat", kBloom},
    {"gpt3-finnish", kBloom},
    {"viking", kViking},
    {"laguna", kLaguna},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-coder", kDeepseekCoder},
    {"deepseek-v3", kDeepseekV3},
    {"hunyuan-dense", kDeepseekV3},
    {"joyai-llm", kDeepseekV3},
    {"hy_v4", kDeepseekV3},
    {"spark2_5", kSpark},
    {"afmoe", kAfmoe},
    {"kimi-k2", kKimiK2},
    {"youtu", kYoutu, true},
    {"tiny_aya", kTinyAya},
    {"cohere2moe", kTinyAya},
    {"granite-embed-multi-97m", kGraniteMulti, true},
    {"jais-2", kJais2},
    {"exaone-moe", kExaoneMoe},
    {"chameleon", kChameleon, false, true},
    {"superbpe", kSuperBpe},
    {"gemma4", kLines, false, true, Spelling::kMetaspace},
    {"granite-embed-multi-311m", kLines, false, true, Spelling::kMetaspace},
    {"sarvam-moe", kLines, false, false, Spelling::kMetaspace},
    {"whitespace", kNonSpaces, false, false, Spelling::kUtf8},
};

}  // namespace

std::span<const PreTokenizer> pre_tokenizers() {
  return kPreTokenizers;
}

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
  for (const auto& row : kPreTokenizers)
    if (row.name == name) return &row;
  return nullptr;
}

const PreTokenizer& default_pre_tokenizer() {
  return kPreTokenizers[0];
}

WordSplitter::WordSplitter(const PreTokenizer& pre, Regex::Engine engine) {
  stages_.reserve(pre.expressions.size());
  for (const auto expression : pre.expressions) stages_.emplace_back(expression, engine);
}

std::string_view WordSplitter::without_surrogates(std::string_view text, std::string& storage) {
  // UTF-8 would spell surrogates as ED A0 80 to ED BF BF.
  for (std::size_t at = text.find('\xED'); at != text.npos; at = text.find('\xED', at + 1)) {
    if (at + 2 >= text.size() || static_cast<unsigned char>(text[at + 1]) < 0xA0) continue;
    if (storage.empty()) storage = text;
    storage.replace(at, 3, "\xEF\xBF\xBF");
  }
  return storage.empty() ? text : std::string_view(storage);
}

}  // namespace forge::text

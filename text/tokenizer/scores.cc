#include "text/tokenizer/scores.h"

#include <fmt/core.h>

#include <cstring>

#include "support/error.h"

namespace forge::text {

std::vector<float> read_scores(const Vocabulary& vocabulary, const loader::Gguf& gguf) {
  const loader::GgufValue* array = gguf.find_value(kScoresKey);
  if (array == nullptr) return {};
  std::vector<float> scores(static_cast<std::size_t>(vocabulary.size()));
  const bool whole = array->is_array() && array->element == loader::GgufType::kI32;
  if (!array->is_array() || (!whole && array->element != loader::GgufType::kF32) || array->count < scores.size())
    throw Error(ErrorCode::kTokenizer, fmt::format("'{}' is {}", kScoresKey, array->describe()),
                fmt::format("an f32 for each of the {} tokens is expected", scores.size()), "convert the model again");
  for (std::size_t id = 0; id < scores.size(); ++id) {
    std::int32_t number = 0;
    static_assert(sizeof number == sizeof(float));
    const std::byte* at = array->bytes.data() + id * sizeof number;
    std::memcpy(&scores[id], at, sizeof number);
    std::memcpy(&number, at, sizeof number);
    if (whole) scores[id] = static_cast<float>(number);
  }
  return scores;
}

}  // namespace forge::text

#pragma once
// The loop that turns logits into tokens.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/sampler.h"
#include "session/sequences.h"

namespace forge::session {

enum class Finish : std::uint8_t { kLength, kEndOfGeneration, kStop, kContext, kReaderGone, kInterrupted };
/// As OpenAI's API names them: "length" (also for the context), "stop"; "cancelled" by the reader or a signal.
[[nodiscard]] std::string_view finish_name(Finish finish);

struct GenerateOptions {
  std::int64_t tokens_max = -1;  ///< -1: until the model ends or the context is full
  runtime::SamplerParams sampler;
  std::span<const std::int32_t> ends;  ///< tokens that end a generation
  std::size_t held = 0;                ///< tokens of the prompt, from its begin, that sequence 0 holds already
};

struct Generated {
  std::vector<std::int32_t> tokens;  ///< a token that ended it is the last one
  Finish finish = Finish::kLength;
  std::size_t prompt_tokens = 0;
  std::size_t held_tokens = 0;  ///< those of them that were not fed, because the sequence held them
  double prompt_seconds = 0;    ///< to the logits of the prompt's last token
  double decode_seconds = 0;    ///< of all steps after it
  std::size_t decode_steps = 0;
};

/// Called with each token as it is sampled (not with one that ends the generation); nullopt: go on.
using TakeToken = std::function<std::optional<Finish>(std::int32_t id)>;

/// Feeds `prompt` to sequence 0 and samples, on the device where it can. Nothing is allocated between tokens. A signal
/// ends it after any token (Finish::kInterrupted); before the first one it is thrown as Interrupted.
/// Errors: kPrompt when the prompt is empty or longer than the context. Precondition: options.held < prompt.size() is
/// the length of sequence 0.
[[nodiscard]] Generated generate(Sequences& sequences, std::size_t vocab, std::span<const std::int32_t> prompt,
                                 const GenerateOptions& options, const TakeToken& take);

/// Errors: kPrompt with both numbers.
void check_prompt(std::span<const std::int32_t> prompt, std::int64_t context);

}  // namespace forge::session

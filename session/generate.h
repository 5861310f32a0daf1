#pragma once
// The generation loop for one sequence: prefill, then sample and decode until an end. Used by forge-run, its chat and
// tests; the server uses runtime/engine instead.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/sampler.h"
#include "runtime/token_constraint.h"
#include "session/sequences.h"

namespace forge::session {

enum class Finish : std::uint8_t { kLength, kEndOfGeneration, kStop, kContext, kReaderGone, kInterrupted };
/// OpenAI's names: "stop" (end token or stop string), "length" (token limit or full context); and "cancelled" (the
/// reader closed the pipe, or a signal).
[[nodiscard]] std::string_view finish_name(Finish finish);

struct GenerateOptions {
  std::int64_t tokens_max = -1;  ///< -1: until the model ends its answer or the context is full
  runtime::SamplerParams sampler;
  std::span<const std::int32_t> ends;  ///< token ids that end a generation
  std::size_t held = 0;                ///< length of the prompt's prefix that is already in sequence 0's KV cache
  /// Makes the constraint of what is generated after a prompt; empty: none. The end is Finish::kStop where nothing else
  /// may follow.
  std::function<std::shared_ptr<runtime::TokenConstraint>(std::span<const std::int32_t> prompt)> constraint = {};
};

struct Generated {
  std::vector<std::int32_t> tokens;  ///< an end token, if there was one, is the last
  Finish finish = Finish::kLength;
  std::size_t prompt_tokens = 0;
  std::size_t held_tokens = 0;   ///< GenerateOptions::held: prompt tokens that were not prefilled
  double prompt_seconds = 0;     ///< duration of the prefill
  double decode_seconds = 0;     ///< duration of everything after the prefill
  std::size_t decode_steps = 0;  ///< one less than the sampled tokens: the first comes from the prefill's logits
};

/// Called with each sampled token except an end token. Returns why to stop, or nullopt to continue.
using TakeToken = std::function<std::optional<Finish>(std::int32_t id)>;

/// Prefills `prompt` into sequence 0 and generates tokens. Sampling runs on the device if the executor supports these
/// parameters there and nothing is constrained, else on the host. Allocates nothing between tokens without a
/// constraint. What a constraint forces is fed in one step with the token before it. A signal after the first token
/// ends the generation (Finish::kInterrupted); before it, Interrupted is thrown. Errors: kPrompt when the prompt is
/// empty or longer than the context; kModelFormat for NaN or infinite logits; kMemory of the constraint; kInternal if
/// it allows no token. Precondition: sequence 0 holds exactly the first options.held tokens of `prompt`, and
/// options.held < prompt.size().
[[nodiscard]] Generated generate(Sequences& sequences, std::size_t vocab, std::span<const std::int32_t> prompt,
                                 const GenerateOptions& options, const TakeToken& take);

/// Errors: kPrompt when the prompt is empty, or longer than `context` tokens.
void check_prompt(std::span<const std::int32_t> prompt, std::int64_t context);

}  // namespace forge::session

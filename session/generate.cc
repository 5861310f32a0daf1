#include "session/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "support/error.h"
#include "support/os/interrupt.h"

namespace forge::session {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::string_view finish_name(Finish finish) {
  switch (finish) {
    case Finish::kEndOfGeneration:
    case Finish::kStop:
      return "stop";
    case Finish::kReaderGone:
    case Finish::kInterrupted:
      return "cancelled";
    default:
      return "length";
  }
}

void check_prompt(std::span<const std::int32_t> prompt, std::int64_t context) {
  if (prompt.empty())
    throw Error(ErrorCode::kPrompt, "the prompt is empty", {}, "give some text with -p, -f or on standard input");
  if (static_cast<std::int64_t>(prompt.size()) > context)
    throw Error(ErrorCode::kPrompt, "the prompt is longer than the context",
                fmt::format("it has {} tokens, and the context is {} tokens", prompt.size(), context),
                fmt::format("shorten it, or give -c {} or more", prompt.size()));
}

Generated generate(Sequences& sequences, std::size_t vocab, std::span<const std::int32_t> prompt,
                   const GenerateOptions& options, const TakeToken& take) {
  check_prompt(prompt, sequences.context());
  invariant(options.held < prompt.size() && static_cast<std::int64_t>(options.held) == sequences.length(0), "TOOL-005",
            "the sequence holds exactly the tokens that are not fed");
  runtime::Sampler sampler(vocab, options.sampler);
  runtime::SamplerScratch scratch(vocab);
  Generated out{.prompt_tokens = prompt.size(), .held_tokens = options.held};
  // The last token of a generation is never fed, so one more than the free positions of the context can be generated.
  const std::int64_t room = sequences.context() - static_cast<std::int64_t>(prompt.size()) + 1;
  const std::int64_t limit = options.tokens_max < 0 ? room : std::min(options.tokens_max, room);
  out.finish = limit == room && options.tokens_max != room ? Finish::kContext : Finish::kLength;
  if (limit == 0) return out;
  out.tokens.reserve(static_cast<std::size_t>(limit));

  auto begin = std::chrono::steady_clock::now();
  sequences.keep_at(0, static_cast<std::int64_t>(runtime::last_turn_end(prompt, options.ends)));
  const auto logits = sequences.prefill(0, prompt.subspan(options.held));
  sequences.keep_state(0);
  out.prompt_seconds = seconds_since(begin);
  for (const auto id : prompt) sampler.accept(id);
  const bool on_device = sequences.can_sample(1, options.sampler);
  begin = std::chrono::steady_clock::now();
  auto id = sampler.sample(logits, scratch);
  check_interrupt();
  while (true) {
    if (id == runtime::Sampler::kNoToken || id == runtime::kNoFiniteLogits)
      throw Error(ErrorCode::kModelFormat, "the model's logits are NaN or infinite", {},
                  "the model file is probably damaged: download or convert it again");
    sampler.accept(id);
    out.tokens.push_back(id);
    std::optional<Finish> finish;
    if (std::ranges::find(options.ends, id) != options.ends.end()) {
      finish = Finish::kEndOfGeneration;
    } else {
      finish = take(id);
    }
    if (!finish && interrupted()) finish = Finish::kInterrupted;
    if (finish) out.finish = *finish;
    if (finish || static_cast<std::int64_t>(out.tokens.size()) == limit) break;
    if (on_device) {  // the first token came from the host, all others from the device's decode loop
      if (out.decode_steps == 0) sequences.begin(std::span(&id, 1), std::span(&sampler, 1), limit - 1);
      id = sequences.next().front();
    } else {
      id = sampler.sample(sequences.decode(std::span(&id, 1)), scratch);
    }
    ++out.decode_steps;
  }
  if (out.decode_steps > 0 && on_device) sequences.end();
  out.decode_seconds = seconds_since(begin);
  return out;
}

}  // namespace forge::session

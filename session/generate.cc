#include "session/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "runtime/mask_thread.h"
#include "support/error.h"
#include "support/os/interrupt.h"

namespace forge::session {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The sampling of one sequence that may have a constraint, whose masks are computed while steps run.
class ConstrainedSampling {
 public:
  /// `constraint`: null if there is none.
  ConstrainedSampling(runtime::Sampler& sampler, std::shared_ptr<runtime::TokenConstraint> constraint)
      : sampler_(sampler), scratch_(sampler.vocab()), constraint_(std::move(constraint)) {
    row_->constraint = constraint_;
  }

  [[nodiscard]] bool is_constrained() const { return constraint_ != nullptr; }
  /// Call before the step whose logits are sampled next.
  void begin_mask() {
    if (!constraint_) return;
    masks_.begin({&row_, 1});
  }
  [[nodiscard]] std::int32_t sample(std::span<const float> logits) {
    masks_.wait();
    if (row_->error) throw Error(*row_->error);
    return sampler_.sample(logits, scratch_, row_->mask);
  }
  /// Returns true if nothing may follow the token.
  bool accept(std::int32_t token) {
    if (!constraint_) return false;
    invariant(constraint_->accept(token), "TOOL-011", "a constraint accepts what its mask allows");
    return constraint_->ended();
  }
  /// Each counts as a draw, as in the engine.
  [[nodiscard]] std::vector<std::int32_t> forced(std::size_t tokens_max) {
    auto tokens = constraint_ ? constraint_->forced(tokens_max) : std::vector<std::int32_t>();
    if (sampler_.params().temperature > 0) sampler_.set_draws(sampler_.draws() + tokens.size());
    return tokens;
  }
  [[noreturn]] void throw_no_token() const {
    if (std::ranges::any_of(row_->mask, [](auto word) { return word != 0; }) || row_->mask.empty())
      throw Error(ErrorCode::kModelFormat, "the model's logits are NaN or infinite", {},
                  "the model file is probably damaged: download or convert it again");
    throw Error(ErrorCode::kInternal, "the constraint allows no token");
  }

 private:
  runtime::Sampler& sampler_;
  runtime::SamplerScratch scratch_;
  std::shared_ptr<runtime::TokenConstraint> constraint_;
  std::shared_ptr<runtime::Constrained> row_ = std::make_shared<runtime::Constrained>();
  runtime::MaskThreads masks_{1};
};

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
  ConstrainedSampling sampling(sampler, options.constraint ? options.constraint(prompt) : nullptr);
  Generated out{.prompt_tokens = prompt.size(), .held_tokens = options.held};
  // The last token of a generation is never fed, so one more than the free positions of the context can be generated.
  const std::int64_t room = sequences.context() - static_cast<std::int64_t>(prompt.size()) + 1;
  const std::int64_t limit = options.tokens_max < 0 ? room : std::min(options.tokens_max, room);
  out.finish = limit == room && options.tokens_max != room ? Finish::kContext : Finish::kLength;
  if (limit == 0) return out;
  out.tokens.reserve(static_cast<std::size_t>(limit));

  auto begin = std::chrono::steady_clock::now();
  sequences.keep_at(0, static_cast<std::int64_t>(runtime::last_turn_end(prompt, options.ends)));
  sampling.begin_mask();
  const auto logits = sequences.prefill(0, prompt.subspan(options.held));
  sequences.keep_state(0);
  out.prompt_seconds = seconds_since(begin);
  for (const auto id : prompt) sampler.accept(id);
  const bool on_device = !sampling.is_constrained() && sequences.can_sample(1, options.sampler);
  begin = std::chrono::steady_clock::now();
  auto id = sampling.sample(logits);
  check_interrupt();
  /// Appends a token. Returns false if it is the last.
  const auto append = [&](std::int32_t token) {
    if (token == runtime::Sampler::kNoToken || token == runtime::kNoFiniteLogits) sampling.throw_no_token();
    sampler.accept(token);
    out.tokens.push_back(token);
    std::optional<Finish> finish;
    if (std::ranges::find(options.ends, token) != options.ends.end()) {
      finish = Finish::kEndOfGeneration;
    } else {
      finish = take(token);
      if (sampling.accept(token) && !finish) finish = Finish::kStop;
    }
    if (!finish && interrupted()) finish = Finish::kInterrupted;
    if (finish) out.finish = *finish;
    return !finish && static_cast<std::int64_t>(out.tokens.size()) < limit;
  };
  while (append(id)) {
    if (on_device) {  // the first token came from the host, all others from the device's decode loop
      if (out.decode_steps == 0) sequences.begin(std::span(&id, 1), std::span(&sampler, 1), limit - 1);
      id = sequences.next().front();
    } else {
      const auto fed = out.tokens.size() - 1;
      const auto forced = sampling.forced(static_cast<std::size_t>(limit) - out.tokens.size());
      if (!std::ranges::all_of(forced, append)) break;
      sampling.begin_mask();
      const auto ids = std::span<const std::int32_t>(out.tokens).subspan(fed);
      id = sampling.sample(forced.empty() ? sequences.decode(ids) : sequences.prefill(0, ids));
    }
    ++out.decode_steps;
  }
  if (out.decode_steps > 0 && on_device) sequences.end();
  out.decode_seconds = seconds_since(begin);
  return out;
}

}  // namespace forge::session

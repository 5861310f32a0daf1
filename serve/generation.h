#pragma once
// One HTTP request that generates text: submits its prompts to the engine, each with its samples, and turns the token
// events into pieces of text for the reply (protocol/answers.h).

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/engine.h"
#include "serve/answer_reader.h"
#include "serve/http/http.h"
#include "serve/protocol/request_json.h"
#include "serve/served_model.h"
#include "text/tokenizer/detokenizer.h"

namespace forge::serve {

/// The next part of one choice. Sample s of prompt p is choice p * samples + s.
struct Piece {
  std::size_t choice = 0;
  std::string text;  ///< final text: whole UTF-8 characters, and no possible beginning of a stop string
  std::vector<text::AnswerDelta> answer;  ///< of a chat: what `text` adds to it
  std::int32_t token = -1;                ///< token id; -1: no token, only the end of the choice
  engine::TokenLogprob chosen;
  std::vector<engine::TokenLogprob> top_logprobs;
  engine::FinishReason finish = engine::FinishReason::kNone;
  std::string error;  ///< one line, if `finish` is kError
};

/// Token counts of a request over all its choices.
struct UsageTotals {
  std::size_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  std::optional<std::size_t> reasoning_tokens;  ///< of the generated ones, with their markers; nullopt: not a chat
};

/// Seconds after which a refused client should retry (Retry-After), from 1 to 60: mean request duration times waiting
/// requests, divided by running ones.
[[nodiscard]] int retry_after_s(const engine::EngineStatus& status);

class Generation {
 public:
  struct Spec {
    std::vector<std::vector<std::int32_t>> prompts;
    GenerationParams params;
    /// Makes the constraint of each sample; empty: none (params.structured is not looked at).
    MakeConstraint constraint;
    std::string_view input = "prompt";          ///< the body's member with the prompts, for errors
    std::shared_ptr<const AnswerRules> answer;  ///< of a chat; null: the answer is plain text
    Wake wake;
    /// Called by next() with the time between two tokens of a sample.
    std::function<void(std::chrono::nanoseconds)> between_tokens;
  };
  /// Submits all prompts, or none of them; may be called from any thread. Errors: the engine's refusal. The model must
  /// outlive the generation.
  [[nodiscard]] static Read<std::shared_ptr<Generation>> start(ServedModel& model, Spec spec);

  /// The next piece of any choice; nullopt if none is ready or all choices have ended. Never blocks.
  [[nodiscard]] std::optional<Piece> next();
  [[nodiscard]] bool ended() const { return ended_ == samples_.size(); }
  [[nodiscard]] std::size_t choices() const { return samples_.size(); }
  [[nodiscard]] std::size_t tokens() const { return tokens_; }  ///< tokens generated so far
  [[nodiscard]] std::size_t prompt_tokens() const { return prompt_tokens_; }
  /// Finish reason of the choice that ended last.
  [[nodiscard]] engine::FinishReason last_finish() const { return last_finish_; }
  /// Complete once ended().
  [[nodiscard]] UsageTotals totals() const;
  /// Usage of each request to the engine.
  [[nodiscard]] std::vector<engine::Usage> usages() const;
  /// Cancels all prompts; their last pieces still come from next().
  void cancel();

 private:
  using Clock = std::chrono::steady_clock;
  /// Detokenizer, stop-string matcher and reader of one sample. The engine's thread has a second instance, so that it
  /// can stop a sample right after the token that completes a stop string or the only call.
  struct SampleText {
    SampleText(const text::Tokenizer& tokenizer, std::shared_ptr<const text::StopStrings> stops,
               std::shared_ptr<const AnswerRules> rules);
    std::string push(std::int32_t token);
    std::string flush();
    /// Whether a sample that ends so has a call that is not complete, and that the model did not end.
    [[nodiscard]] bool is_cut(engine::FinishReason finish) const;
    const text::Tokenizer* tokenizer;
    text::Detokenizer detokenizer;
    text::StopMatcher matcher;
    std::optional<AnswerReader> reader;
    bool stops_at_tokens = false;  ///< the request has stop_token_ids
  };
  struct Sample {
    SampleText text;
    Clock::time_point last;
    bool begun = false;
  };

  /// A request to the engine, whose samples are the choices from `choice` on. More samples than can run at once are
  /// several requests.
  struct Source {
    engine::RequestHandle handle;
    std::size_t choice = 0;
  };

  Generation(Spec& spec, const text::Tokenizer& tokenizer);
  engine::Request request_of(const ServedModel& model, const Spec& spec, std::vector<std::int32_t> prompt,
                             std::size_t first, std::size_t samples) const;
  Piece piece_of(const Source& source, engine::StreamEvent event);

  std::size_t samples_a_prompt_;
  std::shared_ptr<const text::StopStrings> stops_;  ///< shared by all samples
  std::shared_ptr<const AnswerRules> rules_;        ///< the same
  std::function<void(std::chrono::nanoseconds)> between_tokens_;
  std::vector<Sample> samples_;
  std::vector<Source> sources_;
  std::size_t ended_ = 0, tokens_ = 0, prompt_tokens_ = 0, reasoning_tokens_ = 0, turn_ = 0;
  engine::FinishReason last_finish_ = engine::FinishReason::kNone;
};

}  // namespace forge::serve

#pragma once
// A request's tokens as text: one or several prompts, each with its samples, from the engine to whoever writes replies.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/engine.h"
#include "serve/http/http.h"
#include "serve/protocol/request_json.h"
#include "serve/served_model.h"
#include "text/tokenizer/detokenizer.h"

namespace forge::serve {

/// What came of one choice (sample s of prompt p is choice p x samples + s).
struct Piece {
  std::size_t choice = 0;
  std::string text;         ///< certain to stay: whole characters, and nothing of a stop string
  std::int32_t token = -1;  ///< -1: none, only the end
  engine::TokenLogprob chosen;
  std::vector<engine::TokenLogprob> likeliest;
  engine::FinishReason finish = engine::FinishReason::kNone;
  std::string error;
};

struct UsageTotals {
  std::size_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
};

/// When a refused request is worth trying again: what waits, by how long requests took so far.
[[nodiscard]] int retry_after_s(const engine::EngineStatus& status);

class Generation {
 public:
  struct Spec {
    std::vector<std::vector<std::int32_t>> prompts;
    GenerationParams params;
    std::string_view input = "prompt";  ///< the member of the body that the prompts came from
    Wake wake;
    std::function<void(std::chrono::nanoseconds)> between_tokens;  ///< of a sample; on the thread of next()
  };
  /// From any thread. All prompts are taken, or none. Errors: the engine's refusal. The model outlives it.
  [[nodiscard]] static Read<std::shared_ptr<Generation>> start(ServedModel& model, Spec spec);

  /// The next piece; nothing: none came yet, or all have ended. Never waits.
  [[nodiscard]] std::optional<Piece> next();
  [[nodiscard]] bool ended() const { return ended_ == samples_.size(); }
  [[nodiscard]] std::size_t choices() const { return samples_.size(); }
  [[nodiscard]] std::size_t tokens() const { return tokens_; }  ///< that came so far
  [[nodiscard]] std::size_t prompt_tokens() const { return prompt_tokens_; }
  /// How the last choice that ended did.
  [[nodiscard]] engine::FinishReason last_finish() const { return last_finish_; }
  /// After the end.
  [[nodiscard]] UsageTotals totals() const;
  [[nodiscard]] std::vector<engine::Usage> usages() const;
  /// Ends it; the pieces that tell so come as others do.
  void cancel();

 private:
  using Clock = std::chrono::steady_clock;
  /// A sample's text. The engine's thread has another one, to see stop strings where tokens are made.
  struct SampleText {
    SampleText(const text::Tokenizer& tokenizer, std::shared_ptr<const text::StopStrings> stops)
        : detokenizer(tokenizer), matcher(std::move(stops)) {}
    std::string push(std::int32_t token) { return matcher.push(detokenizer.push(token)); }
    std::string flush();
    text::Detokenizer detokenizer;
    text::StopMatcher matcher;
  };
  struct Sample {
    SampleText text;
    Clock::time_point last;
    bool begun = false;
  };

  Generation(Spec& spec, const text::Tokenizer& tokenizer);
  engine::Request request_of(const ServedModel& model, const Spec& spec, std::vector<std::int32_t> prompt) const;
  Piece piece_of(std::size_t prompt, engine::StreamEvent event);

  std::size_t samples_a_prompt_;
  std::shared_ptr<const text::StopStrings> stops_;  ///< of all samples
  std::function<void(std::chrono::nanoseconds)> between_tokens_;
  std::vector<Sample> samples_;
  std::vector<engine::RequestHandle> handles_;
  std::size_t ended_ = 0, tokens_ = 0, prompt_tokens_ = 0, turn_ = 0;
  engine::FinishReason last_finish_ = engine::FinishReason::kNone;
};

}  // namespace forge::serve

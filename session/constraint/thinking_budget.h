#pragma once
// A limit of reasoning: after so many tokens of it, what ends reasoning is forced.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/token_constraint.h"
#include "text/answer/answer_format.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::session {

/// What reasoning of one answer looks like.
struct ThinkingMarks {
  std::string opener;   ///< empty: the prompt has opened it
  std::string closer;   ///< ends it where the model writes it
  std::string closing;  ///< what is forced
};

/// The marks of the answer to `prompt`; nullopt if no reasoning can come. `calls`: tools are offered.
[[nodiscard]] std::optional<ThinkingMarks> thinking_marks(const text::AnswerFormat& format, std::string_view prompt,
                                                          bool calls);

class ThinkingBudget final : public runtime::TokenConstraint {
 public:
  /// `inner`: what else constrains the text, which begins behind reasoning by itself; null: nothing. `vocab`: columns
  /// of the logits. `tokenizer` must outlive this.
  ThinkingBudget(std::unique_ptr<runtime::TokenConstraint> inner, const text::Tokenizer& tokenizer, std::size_t vocab,
                 ThinkingMarks marks, std::size_t tokens_max);

  std::span<const std::uint32_t> mask() override;
  bool accept(std::int32_t token) override;
  void roll_back(std::size_t tokens) override;
  std::vector<std::int32_t> forced(std::size_t tokens_max) override;
  bool ended() override { return inner_ && state_.part == Part::kAfter && inner_->ended(); }

 private:
  enum class Part : std::uint8_t {
    kBefore,    ///< reasoning may begin
    kThinking,  ///< the budget runs
    kClosing,   ///< the closing tokens are forced
    kAfter,
  };
  struct State {
    Part part = Part::kBefore;
    std::size_t tokens = 0;  ///< of reasoning, or of the closing
    std::size_t text = 0;    ///< bytes of text_
  };
  void read(std::int32_t token);
  void begin_closing();

  std::unique_ptr<runtime::TokenConstraint> inner_;
  const text::Tokenizer* tokenizer_;
  ThinkingMarks marks_;
  std::size_t tokens_max_;
  std::vector<std::int32_t> closing_;
  State state_;
  std::vector<State> states_;  ///< before each accepted token
  std::string text_;           ///< up to the end of reasoning
  std::vector<std::uint32_t> mask_;
};

}  // namespace forge::session

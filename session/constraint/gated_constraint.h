#pragma once
// A constraint that begins at a marker in the generated text (ConstraintGate).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "session/constraint/constraints.h"

namespace forge::session {

/// Before the marker every token may come, but no end where the gate does not allow one. A token can reach over the
/// marker's end: what follows in it is taken as the constraint's beginning if it is one, without its leading white
/// space if only that is one, and else ignored.
class GatedConstraint final : public runtime::TokenConstraint {
 public:
  GatedConstraint(std::unique_ptr<runtime::TokenConstraint> inner,
                  std::shared_ptr<const ConstraintVocabulary> vocabulary, const ConstraintGate& gate);

  std::span<const std::uint32_t> mask() override;
  bool accept(std::int32_t token) override;
  void roll_back(std::size_t tokens) override;
  std::vector<std::int32_t> forced(std::size_t tokens_max) override;
  bool ended() override { return state_ == State::kActive && inner_->ended(); }

 private:
  enum class State : std::uint8_t {
    kOpener,     ///< all tokens so far are of the opener; the inner constraint has them, too, as far as it takes them
    kReasoning,  ///< no marker counts
    kWaiting,    ///< for a marker
    kActive,     ///< the inner constraint holds
    kFree,       ///< nothing is constrained any more
  };
  /// For roll_back: what was before a token, and how many tokens the inner constraint has taken for it.
  struct Step {
    State state = State::kWaiting;
    std::size_t opened = 0, text = 0, begin = 0, inner = 0;
  };

  bool accept_opener(std::int32_t token, Step& step);
  bool accept_text(std::int32_t token, Step& step);
  void read_reasoning(std::size_t before);
  void find_marker(std::size_t before, Step& step);
  [[nodiscard]] std::size_t begin_inner(std::string_view text);
  void take_back_inner(std::size_t tokens);

  std::unique_ptr<runtime::TokenConstraint> inner_;
  std::shared_ptr<const ConstraintVocabulary> vocabulary_;
  ConstraintGate gate_;
  std::vector<std::int32_t> opener_;  ///< gate_.opener as tokens
  std::size_t opened_ = 0;            ///< how many of them were generated
  std::size_t inner_tokens_ = 0;      ///< that the inner constraint holds
  bool inner_follows_ = true;         ///< in kOpener: the inner constraint has taken them all
  State state_ = State::kWaiting;
  std::string text_;       ///< gate_.before, and what was generated in kReasoning and kWaiting
  std::size_t begin_ = 0;  ///< where in it markers begin to count
  std::vector<Step> steps_;
  std::vector<std::uint32_t> mask_;
};

}  // namespace forge::session

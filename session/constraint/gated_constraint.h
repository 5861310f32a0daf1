#pragma once
// A constraint that begins behind a marker in the generated text (ConstraintGate).

#include <cstdint>
#include <memory>
#include <string>
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
    kOpener,   ///< the opener may come, or goes on
    kWaiting,  ///< for a marker
    kActive,   ///< the inner constraint holds
  };
  /// What accept changed, for roll_back.
  struct Step {
    State state = State::kWaiting;
    std::size_t opened = 0, text = 0;  ///< before the token
    std::size_t inner = 0;             ///< tokens that the inner constraint took
  };

  bool accept_opener(std::int32_t token, Step& step);
  bool accept_waiting(std::int32_t token, Step& step);
  [[nodiscard]] std::size_t begin_inner(std::string_view text);

  std::unique_ptr<runtime::TokenConstraint> inner_;
  std::shared_ptr<const ConstraintVocabulary> vocabulary_;
  ConstraintGate gate_;
  std::vector<std::int32_t> opener_;  ///< gate_.opener as tokens
  std::size_t opened_ = 0;            ///< how many of them were generated
  State state_ = State::kWaiting;
  std::string text_;  ///< generated while waiting
  std::vector<Step> steps_;
  std::vector<std::uint32_t> mask_;
};

}  // namespace forge::session

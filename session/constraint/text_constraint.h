#pragma once
// A constraint on text (text/constraint) as the engine takes it.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/constraint/constraints.h"
#include "text/constraint/constraint.h"

namespace forge::session {

class TextConstraint final : public runtime::TokenConstraint {
 public:
  TextConstraint(const std::shared_ptr<CompiledConstraint>& compiled,
                 std::shared_ptr<const ConstraintVocabulary> vocabulary)
      : constraint_(compiled), vocabulary_(std::move(vocabulary)) {}

  std::span<const std::uint32_t> mask() override;
  bool accept(std::int32_t token) override;
  void roll_back(std::size_t tokens) override;
  /// Tokens as the model's tokenizer makes them of the forced text. The last one is left out where the text goes on,
  /// because what follows may belong to the same token: `"name": "` ends with ` "`, and ` "A` can be one token.
  std::vector<std::int32_t> forced(std::size_t tokens_max) override;
  bool ended() override;

 private:
  text::constraint::Constraint constraint_;
  std::shared_ptr<const ConstraintVocabulary> vocabulary_;
  std::vector<std::uint32_t> mask_;
  std::optional<std::size_t> mask_at_;  ///< tokens that mask_ is behind; nullopt: it is of another moment
  std::optional<std::size_t> end_;      ///< tokens with the end token
};

}  // namespace forge::session

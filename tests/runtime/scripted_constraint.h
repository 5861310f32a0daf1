#pragma once
// A constraint without text, for tests of the engine and the executors, with a vocabulary of 16 tokens.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/token_constraint.h"

namespace forge::test {

/// Allows tokens by a rule that depends on every token before: a mask of another moment is another mask.
struct Rule {
  std::uint32_t salt = 1;
  std::size_t ends_after = SIZE_MAX;  ///< tokens
  bool forces = false;

  [[nodiscard]] std::uint32_t hash(const std::vector<std::int32_t>& tokens) const {
    std::uint32_t hash = salt;
    for (const auto token : tokens) hash = (hash ^ static_cast<std::uint32_t>(token + 1)) * 0x9E3779B1U;
    return hash ^ hash >> 15;
  }
  /// Never empty; vocabulary of 16.
  [[nodiscard]] std::uint32_t mask(const std::vector<std::int32_t>& tokens) const {
    const auto hash = this->hash(tokens);
    return (hash & hash >> 7 & 0xFFFFU) | 1U << hash % 16;
  }
  [[nodiscard]] std::vector<std::int32_t> forced(const std::vector<std::int32_t>& tokens) const {
    std::vector<std::int32_t> forced, all = tokens;
    while (forces && all.size() < ends_after && hash(all) % 3 == 0 && forced.size() < 5) {
      forced.push_back(static_cast<std::int32_t>(hash(all) % 16));  // which its mask allows
      all.push_back(forced.back());
    }
    return forced;
  }
};

class ScriptedConstraint final : public runtime::TokenConstraint {
 public:
  explicit ScriptedConstraint(const Rule& rule) : rule_(rule) {}
  std::span<const std::uint32_t> mask() override {
    word_ = rule_.mask(tokens_);
    return {&word_, 1};
  }
  bool accept(std::int32_t token) override {
    if ((rule_.mask(tokens_) >> token & 1U) == 0) return false;
    tokens_.push_back(token);
    return true;
  }
  void roll_back(std::size_t tokens) override { tokens_.resize(tokens_.size() - tokens); }
  std::vector<std::int32_t> forced(std::size_t tokens_max) override {
    auto forced = rule_.forced(tokens_);
    forced.resize(std::min(forced.size(), tokens_max));
    return forced;
  }
  bool ended() override { return tokens_.size() >= rule_.ends_after; }

 private:
  Rule rule_;
  std::vector<std::int32_t> tokens_;
  std::uint32_t word_ = 0;
};

inline std::function<std::unique_ptr<runtime::TokenConstraint>()> made_of(const Rule& rule) {
  return [rule] { return std::make_unique<ScriptedConstraint>(rule); };
}

}  // namespace forge::test

#pragma once
// Generated tokens to text as they come: only whole characters are shown, and nothing of a stop string is.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace forge::text {

/// Holds back the bytes of a character that is not complete yet. What comes out is always well-formed UTF-8: bytes that
/// can be no character come out as U+FFFD, one for each stretch that a decoder would give up on.
class Detokenizer {
 public:
  /// `tokenizer` outlives this. `special`: show control tokens as they are spelled.
  explicit Detokenizer(const Tokenizer& tokenizer, bool special = false) : tokenizer_(&tokenizer), special_(special) {}

  /// The text that this token completes; often empty in the middle of a character.
  std::string push(std::int32_t id);
  /// The same for bytes that do not come from a token.
  std::string push_bytes(std::string_view bytes);
  /// What is left when the stream ends (an incomplete character as U+FFFD); afterwards the object is as new.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  std::string pending_;  // fewer than 4 bytes
};

/// Stop strings, made ready for any number of matchers.
class StopStrings {
 public:
  /// Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);
  [[nodiscard]] bool empty() const { return stops_.empty(); }

 private:
  friend class StopMatcher;
  struct Stop {
    std::string text;
    std::vector<std::uint32_t> fallback;  // Knuth-Morris-Pratt: how much still matches after a mismatch
  };
  std::vector<Stop> stops_;
};

/// Looks for stop strings in text that comes in pieces; they may begin in one piece and end in a later one. Holds back
/// exactly what may still become the beginning of a stop string. O(bytes x stop strings), whatever the text.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);
  explicit StopMatcher(std::shared_ptr<const StopStrings> stops);

  /// Text that is certain not to belong to a stop string. Once one is complete, the text before it comes out, the rest
  /// is dropped, and all later calls return nothing. When several are complete at once the longest counts.
  std::string push(std::string_view text);
  /// What was held back, when the stream ends without a stop string.
  std::string flush();
  /// The stop string that was found.
  [[nodiscard]] std::optional<std::string_view> matched() const {
    return found_ != nullptr ? std::optional<std::string_view>(*found_) : std::nullopt;
  }

 private:
  std::shared_ptr<const StopStrings> stops_;
  std::vector<std::uint32_t> states_;  // of each stop string: bytes that match so far
  std::string held_;
  const std::string* found_ = nullptr;  // in stops_
};

}  // namespace forge::text

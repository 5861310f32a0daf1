#pragma once
// Turns generated tokens into text while they arrive: Detokenizer emits whole characters only, and StopMatcher holds
// back text that may turn out to be a stop string.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace forge::text {

/// Token ids or bytes in, well-formed UTF-8 out. The bytes of an incomplete character are held back until it is
/// complete. Bytes that cannot be part of a character become U+FFFD, one for each maximal subpart (Unicode 15, section
/// 3.9).
class Detokenizer {
 public:
  /// `tokenizer` must outlive this. `special`: control tokens are shown as the vocabulary spells them; by default they
  /// give no text.
  explicit Detokenizer(const Tokenizer& tokenizer, bool special = false) : tokenizer_(&tokenizer), special_(special) {}

  /// Adds a token and returns the text that is complete now; often empty in the middle of a character.
  std::string push(std::int32_t id);
  /// The same for bytes that come from elsewhere.
  std::string push_bytes(std::string_view bytes);
  /// Ends the stream: returns what was held back, an incomplete character as U+FFFD. The object can then be used again.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  std::string pending_;  // an incomplete character, at most 3 bytes
};

/// A set of stop strings with their search tables, shared by any number of matchers.
class StopStrings {
 public:
  /// Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);
  [[nodiscard]] bool empty() const { return stops_.empty(); }

 private:
  friend class StopMatcher;
  /// fallback[i] is the length of the longest proper prefix of `text` that is also a suffix of text[0..i]: where
  /// matching goes on after a mismatch at byte i + 1.
  struct Stop {
    std::string text;
    std::vector<std::uint32_t> fallback;  // Knuth-Morris-Pratt failure function, below
  };
  std::vector<Stop> stops_;
};

/// Searches a stream for stop strings, which may begin in one piece and end in a later one. Holds back exactly the text
/// that may still become a stop string. Costs O(bytes x stop strings) whatever the text is.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);
  explicit StopMatcher(std::shared_ptr<const StopStrings> stops);

  /// Adds text and returns what certainly belongs to no stop string. When a stop string is complete, returns the text
  /// before it and drops the rest; all later calls return nothing. If several are complete at the same byte, the
  /// longest wins.
  std::string push(std::string_view text);
  /// What was held back, for a stream that ends without a stop string.
  std::string flush();
  /// The stop string that was found, if any.
  [[nodiscard]] std::optional<std::string_view> matched() const {
    return found_ != nullptr ? std::optional<std::string_view>(*found_) : std::nullopt;
  }

 private:
  std::shared_ptr<const StopStrings> stops_;
  std::vector<std::uint32_t> states_;   // for each stop string: how many of its bytes match so far
  std::string held_;                    // not returned yet
  const std::string* found_ = nullptr;  // in stops_
};

}  // namespace forge::text

#pragma once
// Markers in text: `<tool_call>`, `<|python_tag|>`, `[TOOL_CALLS]`, and what may still become one.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace forge::text {

/// The number of bytes at the end of `text` that may be the beginning of `marker`.
[[nodiscard]] std::size_t begun_marker(std::string_view text, std::string_view marker);

/// The size of the marker at the beginning of `text`: a tag without spaces, quotes and '=', or capital letters in
/// square brackets. 0: there is none.
[[nodiscard]] std::size_t marker_size(std::string_view text);
/// True if `text` is the beginning of a marker that is not complete.
[[nodiscard]] bool may_become_marker(std::string_view text);

/// The marker's ASCII letters in lower case: "toolcallbegin" of `<｜tool▁call▁begin｜>`.
[[nodiscard]] std::string word_of(std::string_view marker);
/// All markers in `text`, each once, in order.
[[nodiscard]] std::vector<std::string> markers_in(std::string_view text);
/// True if `marker` ends something by its form: `</x>`, `[/X]`, or a word like "end" or "suffix".
[[nodiscard]] bool is_closing(std::string_view marker);
/// The marker that ends what `marker` begins, by its form: `</think>` of `<think>`, `[/THINK]`, `<|END_X|>`.
[[nodiscard]] std::string closing_of(std::string_view marker, std::span<const std::string> known);

/// Finds the first of several markers in text that arrives in pieces.
class MarkerSet {
 public:
  struct Found {
    std::size_t at = 0;     ///< everything before is plain text
    std::size_t size = 0;   ///< of the marker; 0: the text ends, or may begin a marker, at `at`
    std::size_t which = 0;  ///< its index in the list
  };
  explicit MarkerSet(std::vector<std::string> markers);
  [[nodiscard]] Found find(std::string_view text, bool end) const;
  [[nodiscard]] const std::vector<std::string>& markers() const { return markers_; }

 private:
  std::vector<std::string> markers_;
  std::string first_bytes_;
};

}  // namespace forge::text

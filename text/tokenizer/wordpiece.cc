#include "text/tokenizer/wordpiece.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "text/tokenizer/unicode.h"

namespace forge::text {
namespace {

/// A longer word becomes the unknown token as a whole, as in BERT.
constexpr std::size_t kWordCharsMax = 100;
constexpr std::uint32_t kCapitalIWithDot = 0x130, kDotAbove = 0x307;

utf8proc_category_t category(std::uint32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

/// Categories Cc, Cf, Cs and Co, except tab and line breaks, which count as spaces.
bool is_control(std::uint32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  if (code < 128) return code < ' ' || code == 0x7F;
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_CC && c <= UTF8PROC_CATEGORY_CO;
}

std::uint8_t class_of(std::uint32_t code) {
  return code < 128 ? ascii_classes()[code] : char_class_slow(code);
}

/// As in BERT, ASCII symbols such as $ and + count as punctuation.
bool is_punctuation(std::uint32_t code) {
  return (class_of(code) & (code < 128 ? kPunct | kSymbol : kPunct)) != 0;
}

/// CJK ideographs; each one is a word. BERT's original code has the range U+2B820 to U+2CEAF. Hugging Face's tokenizers
/// library, which models are used with, starts it at U+2B920, and so does this list.
bool is_ideograph(std::uint32_t code) {
  struct Range {
    std::uint32_t first, last;
  };
  static constexpr std::array<Range, 8> kRanges{{{0x4E00, 0x9FFF},
                                                 {0x3400, 0x4DBF},
                                                 {0x20000, 0x2A6DF},
                                                 {0x2A700, 0x2B73F},
                                                 {0x2B740, 0x2B81F},
                                                 {0x2B920, 0x2CEAF},
                                                 {0xF900, 0xFAFF},
                                                 {0x2F800, 0x2FA1F}}};
  return std::ranges::any_of(kRanges, [&](const Range& r) { return code >= r.first && code <= r.last; });
}

/// Canonical decomposition (NFD; Unicode 15, section 3.11): characters are replaced by their parts, and each run of
/// combining marks is sorted by combining class.
std::vector<std::uint32_t> decomposed(const std::vector<std::uint32_t>& codes) {
  std::vector<std::uint32_t> out;
  out.reserve(codes.size());
  std::array<utf8proc_int32_t, 32> parts{};
  for (const std::uint32_t code : codes) {
    if (code < 128) {
      out.push_back(code);
      continue;
    }
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      out.push_back(static_cast<std::uint32_t>(parts.at(static_cast<std::size_t>(i))));
  }
  // The combining class; 0 for characters that are not reordered.
  const auto order = [](std::uint32_t code) {
    return code < 128 ? 0 : utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
  };
  for (auto at = out.begin(); at != out.end();) {
    const auto begin = std::find_if(at, out.end(), [&](std::uint32_t code) { return order(code) != 0; });
    at = std::find_if(begin, out.end(), [&](std::uint32_t code) { return order(code) == 0; });
    std::ranges::stable_sort(begin, at, {}, order);
  }
  return out;
}

}  // namespace

WordPiece::WordPiece(Vocabulary& vocabulary, const loader::Gguf& gguf) : vocabulary_(&vocabulary) {
  lowercase_ = gguf.get<bool>("tokenizer.ggml.normalizer.lowercase", true);
  strip_accents_ = gguf.get<bool>("tokenizer.ggml.normalizer.strip_accents", lowercase_);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocabulary.size(); ++id)
    if (!vocabulary.text(id).empty() && (vocabulary.kind(id) & kControlToken) == 0) ids.push_back(id);
  trie_ = Trie(vocabulary, std::move(ids));
  word_start_ = Trie::kRoot;
  for (const char c : kMetaspace)
    if (word_start_ != Trie::kNoNode) word_start_ = trie_.child(word_start_, c);
  if (word_start_ == Trie::kNoNode)
    vocabulary.warn("no token begins a word (U+2581 in front); all words become the unknown token");
}

std::vector<std::uint32_t> WordPiece::cleaned(std::string_view text) const {
  std::vector<std::uint32_t> codes;
  codes.reserve(text.size());
  while (!text.empty()) {
    std::size_t bytes = 0;
    if (const std::size_t good = well_formed_bytes(text, bytes); good != 0) {
      bytes = good;
      const std::uint32_t code = text::decode(text, 0).code;
      if (code != 0 && code != kReplacementCode && !is_control(code)) codes.push_back(code);
    }
    text.remove_prefix(bytes);
  }
  if (strip_accents_) {
    codes = decomposed(codes);
    std::erase_if(codes, [](std::uint32_t code) { return code >= 128 && category(code) == UTF8PROC_CATEGORY_MN; });
  }
  if (!lowercase_) return codes;
  std::vector<std::uint32_t> lower;
  lower.reserve(codes.size());
  for (const std::uint32_t code : codes) {
    if (code < 128) {
      lower.push_back(code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code);
      continue;
    }
    lower.push_back(static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
    if (code == kCapitalIWithDot) {  // the only letter whose lower case is two characters
      lower.back() = 'i';
      lower.push_back(kDotAbove);
    }
  }
  return lower;
}

void WordPiece::encode_word(std::string_view word, std::vector<TokenId>& ids) const {
  const std::size_t first = ids.size();
  std::uint32_t from = word_start_;
  for (std::size_t at = 0; at < word.size();) {
    TokenId longest = kNoToken;
    std::size_t longest_end = at;
    std::uint32_t node = from;
    for (std::size_t end = at; end < word.size() && node != Trie::kNoNode;) {
      node = trie_.child(node, word[end++]);
      if (node == Trie::kNoNode || trie_.token(node) == kNoToken) continue;
      longest = trie_.token(node);
      longest_end = end;
    }
    if (longest == kNoToken) {
      ids.resize(first);
      if (vocabulary_->unknown() != kNoToken) ids.push_back(vocabulary_->unknown());
      return;
    }
    ids.push_back(longest);
    at = longest_end;
    from = Trie::kRoot;
  }
}

std::string WordPiece::describe() const {
  return std::string("WordPiece") + (lowercase_ ? ", lower case" : "") + (strip_accents_ ? ", no accents" : "");
}

void WordPiece::encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const {
  std::string word;
  std::size_t chars = 0;
  const auto end_word = [&] {
    if (chars > kWordCharsMax) {
      if (vocabulary_->unknown() != kNoToken) ids.push_back(vocabulary_->unknown());
    } else if (chars != 0) {
      encode_word(word, ids);
    }
    word.clear();
    chars = 0;
  };
  for (const Fragment& fragment : fragments) {
    if (fragment.id != kNoToken) {
      ids.push_back(fragment.id);
      continue;
    }
    for (const std::uint32_t code : cleaned(fragment.text)) {
      const bool space = (class_of(code) & kSpace) != 0;
      const bool alone = !space && (is_punctuation(code) || (code >= 128 && is_ideograph(code)));
      if (space || alone) end_word();
      if (space) continue;
      append_utf8(word, code);
      ++chars;
      if (alone) end_word();
    }
    end_word();
  }
}

}  // namespace forge::text

// The scanners of DeepSeek's models and of later models that reuse them (Hunyuan, Spark, AFMoE): several expressions
// applied one after another, some of which list code points one by one.

#include <algorithm>
#include <array>

#include "text/pretokenizer/split_scan.h"

namespace forge::text {
namespace {

/// Letters that have an upper and a lower case, as deepseek-llm's tokenizer.json lists them. The list follows an older
/// Unicode version and lacks some letters, so it cannot be derived from the general categories.
constexpr std::array<Range, 87> kCasedLetters{
    {{0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},       {0xD8, 0xF6},
     {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},     {0x295, 0x2AF},     {0x370, 0x373},
     {0x376, 0x376},     {0x377, 0x377},     {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},
     {0x388, 0x38A},     {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},
     {0x48A, 0x52F},     {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
     {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},
     {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},
     {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},
     {0x1FB6, 0x1FBC},   {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
     {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},
     {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},
     {0x2126, 0x2126},   {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},
     {0x213C, 0x213F},   {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2183},   {0x2184, 0x2184},
     {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF2},   {0x2CF3, 0x2CF3},
     {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
     {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},
     {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2},
     {0x118A0, 0x118DF}, {0x1E900, 0x1E943}}};

/// What deepseek-llm treats as punctuation: ASCII punctuation, its full-width forms, quotation marks and the CJK full
/// stop.
constexpr std::array<Range, 6> kPunctuation{
    {{'!', '/'}, {':', '~'}, {0x2018, 0x201F}, {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}}};
/// [一-龥ࠀ-一가-퟿]
constexpr std::array<Range, 2> kIdeographs{{{0x800, 0x9FA5}, {0xAC00, 0xD7FF}}};
/// The scripts without spaces between words in AFMoE's expression: Han, kana, Thai, Lao, Khmer, Burmese, Javanese marks
/// and Hangul.
constexpr std::array<Range, 15> kAsianScripts{{{0xE40, 0xE7F},
                                               {0xE80, 0xEFF},
                                               {0x1000, 0x109F},
                                               {0x1100, 0x11FF},
                                               {0x1780, 0x17FF},
                                               {0x2F00, 0x2FDF},
                                               {0x3040, 0x309F},
                                               {0x30A0, 0x30FF},
                                               {0x3400, 0x4DBF},
                                               {0x4E00, 0x9FFF},
                                               {0xA9E0, 0xA9FF},
                                               {0xAA60, 0xAA7F},
                                               {0xAC00, 0xD7AF},
                                               {0xF900, 0xFAFF},
                                               {0xFF65, 0xFF9F}}};

bool is_letter(const CharInfo& s) {
  return s.letter();
}
bool is_punctuation(const CharInfo& s) {
  return (s.classes & kPunct) != 0;
}

/// \s?[...]+ for the class kIn: the number of bytes matched.
template <bool (*kIn)(const CharInfo&)>
std::size_t run_after_space(std::string_view text, std::size_t at) {
  if (const CharInfo c = char_at(text, at); c.space()) {
    const std::size_t body = at + c.bytes, end = run_end(text, body, kIn);
    if (end > body) return end - at;
  }
  return run<kIn>(text, at);
}

/// [\r\n]
std::size_t line_break(std::string_view text, std::size_t at) {
  return text[at] == '\r' || text[at] == '\n' ? 1 : 0;
}

/// A stage for \s+$: spaces at the end of the text are a piece, and everything before them is another. The scan starts
/// at the end, so a long run of spaces is read once.
std::size_t spaces_at_end(std::string_view text, std::size_t at) {
  std::size_t begin = text.size();
  while (begin > at) {
    std::size_t last = begin - 1;
    while (last > at && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!char_at(text, last).space()) break;
    begin = last;
  }
  return begin > at ? begin : text.size();
}

bool ascii_letter(const CharInfo& s) {
  return s.code < 128 && s.letter();
}
bool letter_or_mark(const CharInfo& s) {
  return (s.classes & (kLetter | kMark)) != 0;
}
bool punctuation_or_symbol(const CharInfo& s) {
  return (s.classes & (kPunct | kSymbol)) != 0;
}

bool number(const CharInfo& s) {
  return s.number();
}
bool always(const CharInfo&) {
  return true;
}

// DeepSeek-V3's expression:
// [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// Spark (kJoinNewlines = false) has " ?[\p{P}\p{S}]+" and "[\r\n]" in place of the two alternatives with [\r\n]* and
// [\r\n]+. The alternatives do not cover every character (a number matches none), so the result is a match length for
// isolate().
template <bool kJoinNewlines>
std::size_t v3_word(std::string_view text, std::size_t at) {
  const CharInfo c = char_at(text, at);
  const std::size_t after = at + c.bytes;
  if (c.code < 128 && punctuation_or_symbol(c))
    if (const std::size_t end = run_end(text, after, ascii_letter); end > after) return end - at;
  if (letter_or_mark(c)) return run_end(text, at, letter_or_mark) - at;
  if (!c.newline() && !punctuation_or_symbol(c))
    if (const std::size_t end = run_end(text, after, letter_or_mark); end > after) return end - at;
  const std::size_t body = c.code == ' ' ? after : at;
  if (const std::size_t end = run_end(text, body, punctuation_or_symbol); end > body)
    return (kJoinNewlines ? run_end(text, end, [](const CharInfo& s) { return s.newline(); }) : end) - at;
  if (!kJoinNewlines && c.newline()) return c.bytes;
  if (kJoinNewlines)
    if (const std::size_t end = line_breaks_end(text, at); end > at) return end - at;
  return c.space() ? spaces_end(text, at) - at : 0;
}

}  // namespace

const std::array<Splitter, 6> kDeepseekLlm{isolate<line_break>,
                                           isolate<run_after_space<within<kCasedLetters>>>,
                                           isolate<run_after_space<within<kPunctuation>>>,
                                           spaces_at_end,
                                           isolate<run<within<kIdeographs>>>,
                                           isolate<digits<UINT32_MAX>>};
const std::array<Splitter, 5> kDeepseekCoder{isolate<line_break>, isolate<run_after_space<is_letter>>,
                                             isolate<run_after_space<is_punctuation>>,
                                             isolate<run<within<kIdeographs>>>, isolate<digits<1>>};
const std::array<Splitter, 3> kDeepseekV3{isolate<digits<3>>, isolate<run<within<kIdeographsAndKana>>>,
                                          isolate<v3_word<true>>};
const std::array<Splitter, 4> kSpark{isolate<digits<3>>, isolate<run<within<kIdeographsAndKana>>>,
                                     isolate<v3_word<false>>, isolate<digits<1>>};
const std::array<Splitter, 3> kAfmoe{digit_groups<number, always>, isolate<run<within<kAsianScripts>>>,
                                     isolate<v3_word<true>>};

}  // namespace forge::text

#pragma once
// The regular expressions behind the names of the table in split.cc, each the one of the models' published
// tokenizer.json or, for Kimi, of its Python code; llama.cpp only approximates some of them. Internal to
// text/pretokenizer.
//
// Text comes from strangers, so no expression may take quadratic time. PCRE2 tries a match at every place where the one
// before it did not reach, and steps back when an alternative fails. Therefore an alternative that scans ahead without
// a match is followed by one that consumes what it scanned, or it begins where a run begins, which is what a
// look-behind such as (?<!\s) says. Groups repeat possessively ((...)*+), so that no way back is remembered for each
// round. Where an expression differs from the published one for these reasons, its comment gives the published form;
// the cuts are the same.

#include <array>
#include <string_view>

namespace forge::text::expressions {

using One = std::array<std::string_view, 1>;

// Parts. Contractions are of ASCII letters only, where the published (?i:'s|...) would also match U+017F.
#define FORGE_CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define FORGE_PREFIX R"([^\r\n\p{L}\p{N}]?)"
#define FORGE_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define FORGE_LLAMA3(digits) \
  FORGE_CONTRACTIONS "|" FORGE_PREFIX R"(\p{L}+|)" digits R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)" FORGE_SPACES

inline constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Words = FORGE_LLAMA3(R"(\p{N}{1,3})");
inline constexpr std::string_view kQwen2Words = FORGE_LLAMA3(R"(\p{N})");
inline constexpr std::string_view kDigit = R"(\p{N})";
inline constexpr std::string_view kDigits = R"(\p{N}+)";
inline constexpr std::string_view kThreeDigitsAtMost = R"(\p{N}{1,3})";
inline constexpr std::string_view kThreeAsciiDigits = "[0-9][0-9][0-9]";
inline constexpr std::string_view kLine = R"([^\n]+|[\n]+)";

inline constexpr One kGpt2{kGpt2Words};
inline constexpr std::array kSmolLm{kDigit, kGpt2Words};
inline constexpr std::array<std::string_view, 4> kDefault{R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Words, kDigits,
                                                          kThreeAsciiDigits};
inline constexpr std::array<std::string_view, 3> kFalcon{R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Words, kThreeAsciiDigits};
inline constexpr One kLlama3{kLlama3Words};
inline constexpr One kQwen2{kQwen2Words};
inline constexpr One kQwen35{FORGE_CONTRACTIONS "|" FORGE_PREFIX
                                                R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" FORGE_SPACES};
inline constexpr One kSeedCoder{FORGE_CONTRACTIONS "|" FORGE_PREFIX
                                                   R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+)" FORGE_SPACES};
inline constexpr One kUfakzeka{FORGE_PREFIX R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" FORGE_SPACES};
inline constexpr std::array<std::string_view, 2> kMiniCpm5{kThreeDigitsAtMost, FORGE_LLAMA3(R"(\p{N}+)")};
inline constexpr std::array kLaguna{kLine, kQwen2Words};
inline constexpr One kLines{kLine};
inline constexpr One kNonSpaces{R"(\S+)"};

// Llama 3's with spaces cut by powers of two. Published: \s*[\r\n]+ without the look-behinds. Inside a run of spaces no
// line break can follow, because \s*[\r\n]+ would have taken it from the start of the run.
inline constexpr One kJais2{
    FORGE_CONTRACTIONS
    "|" FORGE_PREFIX R"(\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|(?:(?<!\s)|(?<=[\r\n]))\s*[\r\n]+)"
    R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S))"
    R"(|\s{4}(?!\S)|\s{1,2}(?!\S)|\s)"};

// GPT-4o and its relatives: words with a capital at the start. The published classes are
// U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and L = [\p{Ll}\p{Lm}\p{Lo}\p{M}], here as what they leave out, which is shorter.
#define FORGE_U R"([^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}])"
#define FORGE_L R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}])"
// llama.cpp has a simpler form, with which files of these models are tested: U = every letter but a-z, L = every letter
// but A-Z, so letters outside ASCII are in both.
#define FORGE_SIMPLE_U R"([^\P{L}a-z])"
#define FORGE_SIMPLE_L R"([^\P{L}A-Z])"
#define FORGE_CASED(u, l, ending) FORGE_PREFIX u "*" l "+" ending "|" FORGE_PREFIX u "+" l "*" ending "|"
#define FORGE_AFTER_CASED(digits) digits R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)" FORGE_SPACES

inline constexpr std::string_view kCasedWords =
    FORGE_CASED(FORGE_U, FORGE_L, FORGE_CONTRACTIONS "?") FORGE_AFTER_CASED(R"(\p{N}{1,3})");
inline constexpr One kGpt4o{FORGE_CASED(FORGE_SIMPLE_U, FORGE_SIMPLE_L, FORGE_CONTRACTIONS "?")
                                FORGE_AFTER_CASED(R"(\p{N}{1,3})")};
inline constexpr One kTekken{FORGE_CASED(FORGE_SIMPLE_U, FORGE_SIMPLE_L, "") FORGE_AFTER_CASED(R"(\p{N})")};
inline constexpr One kGraniteMulti{kCasedWords};
inline constexpr std::array<std::string_view, 2> kYoutu{
    R"([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[ㄅ-ㄯ]+|[一-龥\x{3040}-\x{30FF}]+)",
    FORGE_CASED(FORGE_U, FORGE_L, FORGE_CONTRACTIONS "?") FORGE_AFTER_CASED(R"(\p{N})")};
// A run of Han is a word; other words contain none. Published: U and L with &&[^\p{Han}].
inline constexpr One kKimiK2{R"(\p{sc:Han}+|)" FORGE_CASED(
    R"([^\p{sc:Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}])", R"([^\p{sc:Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}])",
    FORGE_CONTRACTIONS "?") R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" FORGE_SPACES};
// Published: \d{1,3}(?=(?:\d{3})*\b), digits in threes from the right end of a run, if no word character follows it.
// The run is counted at its first digit. After that cut (\G), groups of three follow.
inline constexpr std::array<std::string_view, 2> kTinyAya{
    R"(\G(?<=\p{Nd})\p{Nd}{3}|(?<!\p{Nd})\p{Nd}{1,3}(?=(?:\p{Nd}{3})*+(?![\p{L}\p{M}\p{N}\p{Pc}])))", kCasedWords};

// BLOOM.
inline constexpr std::string_view kBloomWord = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
inline constexpr One kBloom{kBloomWord};
inline constexpr std::array kViking{kBloomWord, kDigit};

// DeepSeek and models that reuse its expressions.
inline constexpr std::string_view kLineBreak = R"([\r\n])";
inline constexpr std::string_view kIdeographs = R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)";
inline constexpr std::string_view kIdeographsAndKana = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+)";
inline constexpr std::string_view kDeepseekV3Words =
    R"([!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" FORGE_SPACES;
// Letters that have an upper and a lower case. The list follows an older Unicode version and lacks some letters, so it
// cannot be derived from the general categories.
#define FORGE_CASED_LETTERS                                                                                 \
  R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"    \
  R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"      \
  R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"       \
  R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77})"                \
  R"(\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"                \
  R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE})" \
  R"(\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC})"                \
  R"(\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124})" \
  R"(\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E})" \
  R"(\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})" \
  R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})"                \
  R"(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})"              \
  R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"      \
  R"(\x{1E900}-\x{1E943})"
inline constexpr std::array<std::string_view, 6> kDeepseekLlm{
    kLineBreak,
    R"(\s?[)" FORGE_CASED_LETTERS "]+",
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
    R"((?<!\s)\s++\z)",  // published: \s+$
    kIdeographs,
    kDigits};
inline constexpr std::array<std::string_view, 5> kDeepseekCoder{kLineBreak, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kIdeographs,
                                                                kDigit};
inline constexpr std::array kDeepseekV3{kThreeDigitsAtMost, kIdeographsAndKana, kDeepseekV3Words};
inline constexpr std::array<std::string_view, 4> kSpark{
    kThreeDigitsAtMost, kIdeographsAndKana,
    R"([!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)", kDigit};
// AFMoE: digits in threes from the right end of a run (published: \p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})), see kTinyAya);
// runs of the scripts that have no spaces between words: Han, kana, Thai, Lao, Khmer, Burmese, Javanese, Hangul.
inline constexpr std::array<std::string_view, 3> kAfmoe{
    R"((?<=\p{N})\p{N}{3}|(?<!\p{N})\p{N}{1,3}(?=(?:\p{N}{3})*+(?!\p{N})))",
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF})"
    R"(\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF})"
    R"(\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)",
    kDeepseekV3Words};

// Letters with their marks; a single space joins two words. Published: (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+
inline constexpr One kExaoneMoe{FORGE_CONTRACTIONS "|" FORGE_PREFIX R"((?:\p{L}\p{M}*+)(?: ?\p{L}\p{M}*+)*+)"
                                                   R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
inline constexpr std::array<std::string_view, 6> kChameleon{
    "<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", R"([\t\n]|    |  )", kDigit, R"([\p{P}!-/:-@\[-`{-~])", kGpt2Words};
// Published: (?=(\d{3})+(?!\d)), a cut before every three digits counted from the right end of a run, which has no
// width. Here as the pieces between the cuts, in the order of the alternatives: three digits inside a run; a run's
// first digits, at the start of the piece; and all else up to the next cut, beginning with the last three digits of a
// run or with a run too short for a cut.
inline constexpr std::array<std::string_view, 2> kSuperBpe{
    kDigits, R"((?<=\p{Nd})\p{Nd}{3}(?=\p{Nd})|(?<!\p{Nd})\p{Nd}{1,3}(?=(?:\p{Nd}{3})++(?!\p{Nd})))"
             R"(|(?:\p{Nd}{1,3}(?!\p{Nd}))?+(?:\P{Nd}++(?:\p{Nd}{1,2}(?!\p{Nd}))?+)*+)"
             R"((?:(?<!\p{Nd})\p{Nd}{1,2}(?=(?:\p{Nd}{3})++(?!\p{Nd})))?+)"};

#undef FORGE_CONTRACTIONS
#undef FORGE_PREFIX
#undef FORGE_SPACES
#undef FORGE_LLAMA3
#undef FORGE_U
#undef FORGE_L
#undef FORGE_SIMPLE_U
#undef FORGE_SIMPLE_L
#undef FORGE_CASED
#undef FORGE_AFTER_CASED
#undef FORGE_CASED_LETTERS

}  // namespace forge::text::expressions

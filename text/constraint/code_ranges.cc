#include "text/constraint/code_ranges.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

namespace forge::text::constraint {
namespace {

/// Makes the trailing bytes of sequences, six bits each.
class Utf8Builder {
 public:
  Utf8Builder(RegularPool& pool, const CodeRanges& ranges) : pool_(pool), ranges_(ranges) {}

  /// The sequences of `trailing` bytes after a lead byte, for the code points [first, last], and the lead bytes.
  Expr sequences(std::uint32_t first, std::uint32_t last, unsigned trailing, std::uint8_t lead) {
    const std::uint32_t block = 1U << (6 * trailing);
    std::vector<std::pair<Expr, std::uint8_t>> parts;
    for (std::uint32_t base = first / block * block; base <= last; base += block) {
      const auto tail = tails(std::max(base, first), std::min(base + block - 1, last), base, trailing);
      if (tail != RegularPool::kEmpty) parts.emplace_back(tail, static_cast<std::uint8_t>(lead + base / block));
    }
    return joined(std::move(parts));
  }

 private:
  Expr tails(std::uint32_t first, std::uint32_t last, std::uint32_t base, unsigned trailing) {
    const auto at = std::ranges::lower_bound(ranges_, first, {}, &CodeRange::last);
    if (at == ranges_.end() || at->first > last) return RegularPool::kEmpty;
    if (trailing == 0) return RegularPool::kEpsilon;
    const std::uint32_t block = 1U << (6 * (trailing - 1));
    const bool whole = at->first <= first && at->last >= last && first == base && last == base + block * 64 - 1;
    if (whole && whole_.at(trailing) != RegularPool::kEmpty) return whole_.at(trailing);
    std::vector<std::pair<Expr, std::uint8_t>> parts;
    for (std::uint32_t i = 0; i < 64; ++i) {
      const auto from = base + i * block;
      if (from > last || from + block - 1 < first) continue;
      const auto tail = tails(std::max(from, first), std::min(from + block - 1, last), from, trailing - 1);
      if (tail != RegularPool::kEmpty) parts.emplace_back(tail, static_cast<std::uint8_t>(0x80 | i));
    }
    const auto expr = joined(std::move(parts));
    if (whole) whole_.at(trailing) = expr;
    return expr;
  }

  Expr joined(std::vector<std::pair<Expr, std::uint8_t>> parts) {
    std::ranges::sort(parts);
    std::vector<Expr> all;
    for (std::size_t i = 0; i < parts.size();) {
      const auto tail = parts[i].first;
      ByteSet set;
      for (; i < parts.size() && parts[i].first == tail; ++i) set.add(parts[i].second);
      all.push_back(pool_.concat(pool_.bytes(set), tail));
    }
    return pool_.or_(all);
  }

  RegularPool& pool_;
  const CodeRanges& ranges_;
  std::array<Expr, 4> whole_{};  // any tail of so many bytes
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 38> kCategories{{{"C", "Other"},
                                                                                     {"Cc", "Control"},
                                                                                     {"Cf", "Format"},
                                                                                     {"Cn", "Unassigned"},
                                                                                     {"Co", "Private_Use"},
                                                                                     {"Cs", "Surrogate"},
                                                                                     {"L", "Letter"},
                                                                                     {"LC", "Cased_Letter"},
                                                                                     {"Ll", "Lowercase_Letter"},
                                                                                     {"Lm", "Modifier_Letter"},
                                                                                     {"Lo", "Other_Letter"},
                                                                                     {"Lt", "Titlecase_Letter"},
                                                                                     {"Lu", "Uppercase_Letter"},
                                                                                     {"M", "Mark"},
                                                                                     {"Mc", "Spacing_Mark"},
                                                                                     {"Me", "Enclosing_Mark"},
                                                                                     {"Mn", "Nonspacing_Mark"},
                                                                                     {"N", "Number"},
                                                                                     {"Nd", "Decimal_Number"},
                                                                                     {"Nl", "Letter_Number"},
                                                                                     {"No", "Other_Number"},
                                                                                     {"P", "Punctuation"},
                                                                                     {"Pc", "Connector_Punctuation"},
                                                                                     {"Pd", "Dash_Punctuation"},
                                                                                     {"Pe", "Close_Punctuation"},
                                                                                     {"Pf", "Final_Punctuation"},
                                                                                     {"Pi", "Initial_Punctuation"},
                                                                                     {"Po", "Other_Punctuation"},
                                                                                     {"Ps", "Open_Punctuation"},
                                                                                     {"S", "Symbol"},
                                                                                     {"Sc", "Currency_Symbol"},
                                                                                     {"Sk", "Modifier_Symbol"},
                                                                                     {"Sm", "Math_Symbol"},
                                                                                     {"So", "Other_Symbol"},
                                                                                     {"Z", "Separator"},
                                                                                     {"Zl", "Line_Separator"},
                                                                                     {"Zp", "Paragraph_Separator"},
                                                                                     {"Zs", "Space_Separator"}}};

/// Runs of code points of one category.
struct CategoryRun {
  CodeRange codes;
  std::string_view category;
};

const std::vector<CategoryRun>& category_runs() {
  static const auto runs = [] {
    std::vector<CategoryRun> all;
    for (std::uint32_t code = 0; code <= kCodeMax; ++code) {
      const std::string_view category = utf8proc_category_string(static_cast<utf8proc_int32_t>(code));
      if (!all.empty() && all.back().category == category) {
        all.back().codes.last = code;
      } else {
        all.push_back({{code, code}, category});
      }
    }
    return all;
  }();
  return runs;
}

}  // namespace

CodeRanges normalized(CodeRanges ranges) {
  std::ranges::sort(ranges, {}, &CodeRange::first);
  CodeRanges result;
  for (const auto& range : ranges) {
    if (!result.empty() && range.first <= result.back().last + 1) {
      result.back().last = std::max(result.back().last, range.last);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

CodeRanges complement(CodeRanges ranges) {
  CodeRanges result;
  std::uint32_t next = 0;
  for (const auto& range : normalized(std::move(ranges))) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCodeMax) result.push_back({next, kCodeMax});
  return result;
}

Expr utf8_of(RegularPool& pool, const CodeRanges& ranges) {
  const auto sorted = normalized(ranges);
  Utf8Builder builder(pool, sorted);
  return pool.or_({builder.sequences(0, 0x7F, 0, 0), builder.sequences(0x80, 0x7FF, 1, 0xC0),
                   builder.sequences(0x800, 0xD7FF, 2, 0xE0), builder.sequences(0xE000, 0xFFFF, 2, 0xE0),
                   builder.sequences(0x10000, kCodeMax, 3, 0xF0)});
}

std::optional<CodeRanges> general_category(std::string_view name) {
  if (name == "Any") return CodeRanges{{0, kCodeMax}};
  if (name == "ASCII") return CodeRanges{{0, 0x7F}};
  if (name == "punct") name = "P";
  if (name == "digit") name = "Nd";
  const auto known =
      std::ranges::find_if(kCategories, [&](const auto& row) { return row.first == name || row.second == name; });
  if (known == kCategories.end()) return std::nullopt;
  CodeRanges ranges;
  for (const auto& [codes, category] : category_runs()) {
    const bool cased = category == "Lu" || category == "Ll" || category == "Lt";
    if (known->first == "LC" ? cased : category.starts_with(known->first)) ranges.push_back(codes);
  }
  return normalized(std::move(ranges));
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace forge::text::constraint

#include "text/answer/call_layout.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/answer/white_space.h"

namespace forge::text {
namespace {

/// The text before `part` in `text` from `at`, which is moved behind it.
std::optional<std::string_view> up_to(std::string_view text, std::size_t& at, std::string_view part) {
  const std::size_t found = text.find(part, at);
  if (found == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(at, found - at);
  at = found + part.size();
  return before;
}

/// Drops an opening brace or bracket and what is around a string in it, `{"`, from the end of `text`.
bool drop_object_begin(std::string& text) {
  const std::size_t quote = text.find_last_not_of("\"'");
  if (quote == std::string::npos || quote + 2 != text.size()) return false;
  const std::size_t brace = text.find_last_not_of(kWhiteSpace, quote);
  if (brace == std::string::npos || text[brace] != '{') return false;
  text.resize(brace);
  return true;
}

bool drop_object_end(std::string& text) {
  if (text.empty() || (text[0] != '"' && text[0] != '\'')) return false;
  const std::size_t brace = text.find_first_not_of(kWhiteSpace, 1);
  if (brace == std::string::npos || text[brace] != '}') return false;
  text.erase(0, brace + 1);
  return true;
}

void replace_all(std::string& text, std::string_view part, std::string_view by) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + by.size()))
    text.replace(at, part.size(), by);
}

/// Puts marks for names, ids and numbers. `number`: of the call in front of whose name `text` is, or whose end it is.
void mark(std::string& text, std::string_view number) {
  replace_all(text, kProbeName, std::string(1, kNameMark));
  replace_all(text, kProbeId, std::string(1, kIdMark));
  replace_all(text, kProbeId2, std::string(1, kIdMark));
  const std::string quoted = "\"" + std::string(number) + "\"", after_colon = ":" + std::string(number);
  if (const std::size_t at = text.find(quoted); at != std::string::npos)
    text.replace(at + 1, number.size(), {kIndexMark});
  if (text.starts_with(after_colon)) text.replace(1, number.size(), {kIndexMark});
}

class LayoutFinder {
 public:
  LayoutFinder(const FormatProbe& probe, std::string_view think_close) : probe_(probe), think_close_(think_close) {}

  CallLayout find() {
    const auto& call = *probe_.call;
    out_.open = call.before;
    if (const std::size_t thought = think_close_.empty() ? std::string::npos : out_.open.find(think_close_);
        thought != std::string::npos)
      out_.open.erase(0, thought + think_close_.size());
    out_.open.erase(0, std::min(out_.open.find_first_not_of(kWhiteSpace), out_.open.size()));
    out_.name_end = call.middle;
    rest_ = call.after;
    drop_turn_end();
    if (!read_json() && !read_keys()) return {};
    read_second_call();
    out_.end = rest_.substr(out_.close.size());
    for (auto* text : {&out_.open, &out_.name_end, &out_.close, &out_.end}) mark(*text, "0");
    mark(out_.between, "1");
    return out_;
  }

 private:
  /// Drops from `rest_` what follows the content of an answer without calls, too.
  void drop_turn_end() {
    if (!probe_.after_content) return;
    const std::string& end = *probe_.after_content;
    std::size_t same = 0;
    while (same < std::min(end.size(), rest_.size()) && end[end.size() - 1 - same] == rest_[rest_.size() - 1 - same])
      ++same;
    // A marker that both share in part belongs to neither.
    while (same > 0 && same < end.size() && rest_[rest_.size() - same] != '<' && rest_[rest_.size() - same] != '[')
      --same;
    rest_.resize(rest_.size() - same);
  }

  bool read_json() {
    std::string name_end = out_.name_end, rest = rest_;
    const std::string& between = probe_.call->between;
    const bool quoted = between.starts_with('"') || between.starts_with('\'');
    if (!quoted || !trimmed(std::string_view(between).substr(1)).starts_with(':')) return false;
    if (!drop_object_begin(name_end) || !drop_object_end(rest)) return false;
    out_.arguments = CallLayout::Arguments::kJson;
    out_.name_end = std::move(name_end);
    taken_ = rest_.size() - rest.size();
    rest_ = std::move(rest);
    return true;
  }

  bool read_keys() {
    std::size_t at = 0;
    const auto head = up_to(probe_.two_keys, at, kProbeValue);
    const auto next = head ? up_to(probe_.two_keys, at, kProbeKey2) : std::nullopt;
    const std::string& begin = probe_.call->between;
    if (!next || begin.empty()) return false;
    const std::string gap(*next);
    if (gap.contains('<') && begin[0] != '=' && begin[0] != ':') {
      out_.arguments = CallLayout::Arguments::kTagged;
      const std::size_t same = common_size(gap, rest_);
      out_.value_end = gap.substr(0, same);
      replace_all(out_.value_end, kProbeKey, std::string(1, kKeyMark));
      out_.key_begin = gap.substr(same);
      out_.value_begin = begin;
      rest_.erase(0, taken_ = same);
      if (!out_.name_end.ends_with(out_.key_begin)) return false;
      out_.name_end.resize(out_.name_end.size() - out_.key_begin.size());
      return true;
    }
    // f(key='value', next='value') or f{key:<|"|>value<|"|>}
    if (begin.size() < 2 || (begin[0] != '=' && begin[0] != ':')) return false;
    const std::string quote = begin.substr(1);
    if (!gap.starts_with(quote) || !rest_.starts_with(quote)) return false;
    out_.arguments = CallLayout::Arguments::kLiterals;
    out_.value_begin = begin.substr(0, 1);
    if (quote.size() > 1) out_.quote = quote;
    out_.key_between = gap.substr(quote.size());
    rest_.erase(0, taken_ = quote.size());
    return true;
  }

  /// Finds what is between two calls, and what of `rest_` ends each.
  void read_second_call() {
    out_.close = rest_;
    std::size_t at = 0;
    if (!up_to(probe_.two_calls, at, kProbeValue)) return;
    std::string_view inter = std::string_view(probe_.two_calls).substr(at);
    const std::size_t value = inter.find(kProbeValue2);
    if (value == std::string_view::npos) return;
    // The name that is read is the one before the arguments, not one that is part of an id.
    const std::size_t name = inter.substr(0, value).rfind(kProbeName);
    if (name == std::string_view::npos) return;
    if (taken_ > name) return;
    inter = inter.substr(taken_, name - taken_);
    const std::size_t same = common_size(inter, rest_);
    out_.close = rest_.substr(0, same);
    out_.between = inter.substr(same);
    out_.several = true;
  }

  const FormatProbe& probe_;
  std::string_view think_close_;
  std::string rest_;       // from the end of the arguments
  std::size_t taken_ = 0;  // bytes between the last value and that
  CallLayout out_;
};

}  // namespace

CallLayout find_call_layout(const FormatProbe& probe, std::string_view think_close) {
  return probe.call ? LayoutFinder(probe, think_close).find() : CallLayout{};
}

}  // namespace forge::text

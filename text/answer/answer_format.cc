#include "text/answer/answer_format.h"

#include <algorithm>

#include "text/answer/format_probe.h"
#include "text/answer/format_table.h"
#include "text/answer/markers.h"
#include "text/answer/white_space.h"

namespace forge::text {
namespace {

template <class Words>
bool has_word(std::string_view marker, const Words& words) {
  const std::string word = word_of(marker);
  return std::ranges::any_of(words, [&](std::string_view part) { return word.contains(part); });
}

bool has(const std::vector<std::string>& list, std::string_view marker) {
  return std::ranges::find(list, marker) != list.end();
}
void add(std::vector<std::string>& list, std::string_view marker) {
  if (!marker.empty() && !has(list, marker)) list.emplace_back(marker);
}

/// Markers with the words that follow them directly: `<|begin|>assistant`, `<|content|>`.
void add_dropped(AnswerFormat& format, std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    std::size_t size = marker_size(text.substr(i));
    if (size == 0) {
      ++i;
      continue;
    }
    const std::string_view marker = text.substr(i, size);
    while (i + size < text.size() && (text[i + size] | 0x20) >= 'a' && (text[i + size] | 0x20) <= 'z') ++size;
    if (marker != format.think_open && marker != format.think_close && !has_word(marker, kThinkWords))
      add(format.dropped, text.substr(i, size));
    i += size;
  }
}

/// The form of calls that most models were trained on, one JSON object between tags (Hermes).
constexpr std::string_view kDescribedOpener = "<tool_call>", kDescribedCloser = "</tool_call>";

CallLayout described_layout() {
  CallLayout layout;
  layout.arguments = CallLayout::Arguments::kJson;
  layout.open = std::string(kDescribedOpener) + "\n{\"name\": \"";
  layout.name_end = "\", \"arguments\": ";
  layout.close = "}\n" + std::string(kDescribedCloser);
  layout.between = "\n" + layout.open;
  layout.several = true;
  return layout;
}

class FormatFinder {
 public:
  FormatFinder(std::string_view source, std::span<const std::string> control_tokens, std::string_view bos,
               std::string_view eos)
      : source_(source),
        eos_(eos),
        control_(control_tokens),
        known_(markers_in(source)),
        probe_(probe_format(source, bos, eos)) {
    for (const auto& token : control_tokens) add(known_, token);
  }

  AnswerFormat find() {
    read();
    find_tokens();
    find_layout();
    format_.history = probe_.history;
    return format_;
  }

 private:
  void read() {
    if (source_.contains(kChannelMarkers.channel) && source_.contains(kChannelMarkers.message)) {
      format_.channels = true;
      for (const auto end : kChannelMarkers.ends) add(format_.closers, end);
      add(format_.closers, kChannelMarkers.start);
      return;
    }
    find_reasoning();
    if (source_.contains(">>>all")) {
      format_.recipients = true;
      add(format_.openers, kRecipientMark);
      add(format_.closers, kRecipientMark);
    } else if (probe_.call) {
      read_call(*probe_.call);
    }
    if (!format_.has_calls()) find_unprinted();
    if (source_.contains(kPythonTag) || (format_.bare_json && has(known_, kPythonTag)))
      add(format_.openers, kPythonTag);
    if (probe_.before_content) read_content();
    if (!format_.closers.empty()) {
      add(format_.closers, eos_);
      for (const auto& token : control_)
        if (token.size() > 2 && is_closing(token) && token != format_.think_close) add(format_.closers, token);
    }
    format_.cdata = source_.contains("<![CDATA[");
  }

  /// The layout of printed calls, or what the marker of unprinted ones is most often followed by.
  void find_layout() {
    CallLayout& layout = format_.layout;
    layout.arguments = CallLayout::Arguments::kJson;
    if (format_.channels) {
      layout.open = "<|channel|>commentary to=functions.";
      layout.name_end = " <|constrain|>json<|message|>";
      layout.end = kChannelMarkers.ends[1];
    } else if (format_.recipients) {
      layout.open = layout.between = kRecipientMark;
      layout.name_end = "\n";
      layout.several = true;
    } else if (probe_.call) {
      layout = find_call_layout(probe_, format_.think_close);
    } else if (!format_.openers.empty()) {
      const std::string& opener = format_.openers[0];
      if (read_sections(layout)) return;
      if (opener == kDescribedOpener) {
        layout = described_layout();
        return;
      }
      const bool fenced = marker_size(opener) == 0;
      layout = json_list_layout(opener + (fenced ? "\n```json\n" : ""),
                                fenced ? "\n```" : closing_of(opener, format_.closers));
    } else if (!format_.elements.empty()) {
      const std::string& element = format_.elements[0];
      layout.open = element;
      layout.name_end = element.ends_with('"') ? "\">" : ">";
      layout.close = "</" + element.substr(1, element.find_first_of("= ") - 1) + ">";
      layout.between = "\n" + element;
      layout.several = true;
    } else {
      layout.arguments = CallLayout::Arguments::kUnknown;
    }
  }

  /// A section of calls whose ids have the names, by the words of its markers (Kimi K2).
  bool read_sections(CallLayout& layout) const {
    const auto marker = [&](std::string_view end) -> std::string {
      const auto found = std::ranges::find_if(known_, [&](const auto& name) { return word_of(name).ends_with(end); });
      return found == known_.end() ? std::string() : *found;
    };
    const std::string begin = marker("callbegin"), arguments = marker("argumentbegin");
    if (begin.empty() || arguments.empty()) return false;
    layout.between = begin + "functions.";
    layout.open = marker("sectionbegin") + layout.between;
    layout.name_end = std::string(":") + kIndexMark + arguments;
    layout.close = marker("callend");
    layout.end = marker("sectionend");
    layout.several = true;
    return true;
  }

  static CallLayout json_list_layout(const std::string& before, const std::string& after) {
    CallLayout layout;
    layout.arguments = CallLayout::Arguments::kJson;
    layout.open = before + "[{\"name\": \"";
    layout.name_end = "\", \"arguments\": ";
    layout.close = "}";
    layout.between = ", {\"name\": \"";
    layout.end = "]" + after;
    layout.several = true;
    return layout;
  }

  /// A control token belongs to answers if a call or reasoning is printed with it, or, where the template prints none,
  /// if its word says so.
  void find_tokens() {
    std::string printed;
    if (probe_.call) printed = probe_.call->before + probe_.call->middle + probe_.call->between + probe_.call->after;
    for (const auto* list : {&format_.openers, &format_.elements, &format_.dropped})
      for (const auto& marker : *list) printed += marker + '\n';
    printed += format_.think_open + '\n' + format_.think_close;
    for (const auto& token : control_) {
      const bool named = !probe_.call && has_word(token, kCallWords);
      const bool channel = format_.channels && (token == kChannelMarkers.start || token == kChannelMarkers.channel ||
                                                token == kChannelMarkers.message ||
                                                token == kChannelMarkers.constrain || has(format_.closers, token));
      if (!token.empty() && (named || channel || printed.contains(token))) add(format_.tokens, token);
    }
  }

  void find_reasoning() {
    if (probe_.reasoning) read_reasoning(*probe_.reasoning);
    if (format_.think_open.empty() && !probe_.thought_end.empty()) read_thought_end(probe_.thought_end);
    for (const auto& marker : known_) {
      if (!format_.think_open.empty()) break;
      if (!has_word(marker, kThinkWords) || word_of(marker).starts_with("no") || has_word(marker, kOtherWords))
        continue;
      if (is_closing(marker)) continue;
      format_.think_close = closing_of(marker, known_);
      if (!format_.think_close.empty()) format_.think_open = marker;
    }
    for (const auto& marker : known_) {
      if (!format_.think_open.empty()) break;
      if (!has_word(marker, kThinkWords) || marker[1] != '/') continue;
      format_.think_close = marker;
      format_.think_open = marker;
      format_.think_open.erase(1, 1);
    }
    if (format_.think_open.empty()) find_told_reasoning();
    if (format_.think_open.empty()) return;
    const std::string_view end = trimmed(probe_.prompt_end);
    if (end.ends_with(format_.think_open))
      format_.opened_by_prompt = trimmed(end.substr(0, end.size() - format_.think_open.size()));
  }

  void read_reasoning(const FormatProbe::Reasoning& reasoning) {
    const auto opening = markers_in(reasoning.before);
    const auto closing = markers_in(reasoning.between);
    if (opening.empty() || closing.empty()) return;
    const std::string& open = opening.back();
    const std::string_view text = std::string_view(reasoning.before).substr(reasoning.before.rfind(open) + open.size());
    // A marker that is not there without reasoning needs no word, nor do an opening and a closing tag right around it.
    const bool is_own = !markers_in(std::string_view(reasoning.before).substr(reasoning.common)).empty();
    const bool is_pair = trimmed(text).empty() && trimmed(reasoning.between).starts_with(closing.front()) &&
                         closing_of(open, closing) == closing.front() && !has(usual_openers(), open);
    if (!is_own && !is_pair && !has_word(open, kThinkWords) && !has_word(text, kThinkWords)) return;
    if (trimmed(text).size() > 16) return;
    format_.think_open = open + std::string(trimmed(text));
    format_.think_close = closing.front();
    std::string_view rest = reasoning.between;
    rest.remove_prefix(rest.find(format_.think_close) + format_.think_close.size());
    if (!probe_.reasoning_beside_call) add_dropped(format_, rest);
  }

  /// The markers in front of content.
  [[nodiscard]] std::vector<std::string> usual_openers() const {
    std::vector<std::string> out;
    if (probe_.before_content)
      for (auto& marker : markers_in(*probe_.before_content))
        if (!probe_.before_content->contains(closing_of(marker, known_))) out.push_back(std::move(marker));
    return out;
  }

  /// A pair of tags that the prompt tells of, with words of thinking between them: `[X]Your thoughts[/X]`.
  void find_told_reasoning() {
    for (const auto& marker : markers_in(probe_.asked)) {
      const std::string closer = closing_of(marker, known_);
      const std::size_t begin = probe_.asked.find(marker);
      const std::size_t end = closer.empty() ? std::string::npos : probe_.asked.find(closer, begin);
      if (is_closing(marker) || end == std::string::npos || end - begin > 400) continue;
      if (!has_word(std::string_view(probe_.asked).substr(begin + marker.size(), end - begin - marker.size()),
                    kThinkWords))
        continue;
      format_.think_open = marker;
      format_.think_close = closer;
      return;
    }
  }

  /// Reasoning that is part of the content in history. What begins it is known, or ends the prompt.
  void read_thought_end(const std::string& closer) {
    for (const auto& marker : known_)
      if (format_.think_open.empty() && marker != closer && closing_of(marker, known_) == closer)
        format_.think_open = marker;
    if (format_.think_open.empty() && closer.size() > 3 && closer[1] == '/')
      format_.think_open = closer.substr(0, 1) + closer.substr(2);
    if (!format_.think_open.empty()) format_.think_close = closer;
  }

  void read_content() {
    const std::vector<std::string> before = markers_in(*probe_.before_content);
    add_dropped(format_, *probe_.before_content);
    for (const auto& marker : before)
      if (has(format_.dropped, marker)) {
        const std::string end = closing_of(marker, known_);
        if (probe_.after_content->contains(end)) add(format_.dropped, end);
      }
  }

  void read_call(const FormatProbe::Call& call) {
    std::string_view rest = call.before;
    for (;;) {
      rest.remove_prefix(std::min(rest.find_first_not_of(kWhiteSpace), rest.size()));
      const std::size_t size = marker_size(rest);
      if (size == 0) break;
      const std::string_view marker = rest.substr(0, size);
      if (marker != format_.think_open && marker != format_.think_close && !has_word(marker, kThinkWords))
        add(format_.openers, marker);
      rest.remove_prefix(size);
    }
    const std::size_t tag = rest.rfind('<');
    if (tag != std::string_view::npos && tag + 1 == rest.size())
      format_.name_is_tag = true;
    else if (tag != std::string_view::npos && !rest.substr(tag).contains('>'))
      add(format_.elements, rest.substr(tag));
    else if (format_.openers.empty())
      read_unmarked(call, rest);
    format_.name_is_key = rest.ends_with("{\"") && call.middle.starts_with('"');
    read_keys(call, rest);
    if (const std::size_t id = call.middle.find(kProbeId); id != std::string::npos)
      if (const auto markers = markers_in(call.middle.substr(0, id)); !markers.empty())
        format_.id_marker = markers.back();
    if (trimmed(call.middle) == "{" && call.between.starts_with(':')) {
      format_.braces = true;
      if (call.between.size() > 2 && call.between[1] == '<') format_.quote = call.between.substr(1);
    }
    format_.strips_newlines = call.between.ends_with('\n') && call.after.starts_with('\n');
    for (const auto& marker : markers_in(call.after))
      if (!has(format_.openers, marker) && marker != format_.quote && !marker.contains(kProbeKey) &&
          !marker.contains(kProbeName))
        add(format_.closers, marker);
    if (call.after.contains(kFence)) add(format_.closers, kFence);
    for (const auto& opener : std::vector<std::string>(format_.openers))
      if (marker_size(opener) == opener.size()) add(format_.closers, closing_of(opener, known_));
  }

  /// What stands for "name" and "arguments", and what surrounds a parameter's name. `rest`: what ends before the name.
  void read_keys(const FormatProbe::Call& call, std::string_view rest) {
    if (!format_.name_is_key && rest.ends_with('"')) format_.name_key = key_before(rest.substr(0, rest.size() - 1));
    const std::string_view middle = call.middle;
    if (middle.ends_with("{\"") && middle.starts_with('"'))
      format_.arguments_key = key_before(middle.substr(0, middle.size() - 2));
    const auto markers = markers_in(middle);
    if (!markers.empty() && trimmed(middle).ends_with(markers.back()) &&
        trimmed(call.between).starts_with("</" + markers.back().substr(1)))
      format_.key_tag = markers.back();
  }

  /// The key whose value begins behind `text`: "name" of `{"name": `.
  static std::string key_before(std::string_view text) {
    text = trimmed(text);
    if (!text.ends_with(':')) return {};
    text = trimmed(text.substr(0, text.size() - 1));
    if (!text.ends_with('"')) return {};
    text.remove_suffix(1);
    const std::size_t begin = text.rfind('"');
    return begin == std::string_view::npos ? std::string() : std::string(text.substr(begin + 1));
  }

  /// A call that begins with no marker: with text of its own, or at once. `rest`: up to the name.
  void read_unmarked(const FormatProbe::Call& call, std::string_view rest) {
    const std::string_view word = trimmed(rest.substr(0, rest.find_first_of("[{`")));
    if (!word.empty()) {
      add(format_.openers, word);
    } else if (rest.starts_with(kFence) && !rest.starts_with("```json")) {
      add(format_.openers, trimmed(rest.substr(0, rest.find_first_of("\n{["))));
    } else if (rest.empty()) {
      format_.bare_name = call.middle.starts_with('\n');
    } else {
      format_.bare_json = rest.contains('{');
      format_.bare_json_list = format_.bare_json && rest.contains('[');
      format_.bare_list = !format_.bare_json && call.middle.starts_with('(');
    }
    const std::string_view middle = trimmed(std::string_view(call.middle).substr(0, call.middle.find('{')));
    if (word.empty() || rest.contains('{') || middle.empty() || middle.contains('"') || middle.contains('(')) return;
    format_.separator = middle;
    // What ends such a call follows its last brace, up to the end of the line or a marker.
    if (const std::size_t brace = call.after.find('}'); brace != std::string::npos) {
      const std::string_view end = trimmed(std::string_view(call.after).substr(brace + 1));
      add(format_.closers, end.substr(0, end.find_first_of("\n<[")));
    }
  }

  /// The template prints no calls.
  void find_unprinted() {
    for (const auto& marker : known_) {
      if (!has_word(marker, kCallWords) || has_word(marker, kOtherWords)) continue;
      add(is_closing(marker) ? format_.closers : format_.openers, marker);
      if (!is_closing(marker)) add(format_.closers, closing_of(marker, known_));
    }
    for (const auto element : kElements)
      if (source_.contains(element)) add(format_.elements, element);
    for (const auto& row : kUnprintedFormats) {
      if (format_.has_calls() || !source_.contains(row.sign)) continue;
      add(format_.openers, row.opener);
      add(format_.closers, row.closer);
    }
    if (!format_.has_calls()) find_described();
  }

  /// The prompt tells the model of a marker, in words that it has only if there are tools. Markers around the tools'
  /// descriptions begin no call.
  void find_described() {
    const std::string_view text = probe_.asked_with_tools;
    const std::vector<std::string> usual = markers_in(probe_.asked), all = markers_in(text);
    for (const auto& marker : all) {
      if (has(usual, marker) || is_closing(marker) || has_word(marker, kOtherWords) || has_word(marker, kThinkWords))
        continue;
      const std::string closer = closing_of(marker, known_);
      const std::size_t begin = text.find(marker), end = closer.empty() ? begin : text.find(closer, begin);
      const bool around = end != std::string_view::npos && text.substr(begin, end - begin).contains(kProbeName);
      const bool is_known = has(all, closer) || std::ranges::find(control_, marker) != control_.end();
      if (around || !is_known) continue;
      add(format_.openers, marker);
      if (has(all, closer)) add(format_.closers, closer);
      return;
    }
  }

  std::string_view source_, eos_;
  std::span<const std::string> control_;
  std::vector<std::string> known_;
  FormatProbe probe_;
  AnswerFormat format_;
};

}  // namespace

bool prompt_opens_reasoning(const AnswerFormat& format, std::string_view prompt) {
  const std::string_view end = trimmed_end(prompt);
  if (format.think_open.empty() || end.ends_with(format.think_close)) return false;
  if (end.ends_with(format.think_open)) return true;
  const std::string& header = format.opened_by_prompt;
  if (header.empty() || end.ends_with(header)) return false;
  // The turn goes on after a tool's result, without a header: it reasons unless it has before.
  const std::size_t turn = prompt.rfind(header);
  return turn != std::string_view::npos && prompt.find(format.think_close, turn) == std::string_view::npos;
}

AnswerFormat AnswerFormat::without_calls() const {
  AnswerFormat out = *this;
  for (auto* list : {&out.openers, &out.elements}) list->clear();
  if (!channels) out.closers.clear();
  out.bare_json = out.bare_json_list = out.bare_list = out.bare_name = false;
  if (recipients) add(out.openers, kRecipientMark);
  out.calls_are_text = true;
  // What is left of the control tokens is not acted on, and must not be seen.
  std::erase_if(out.tokens, [&](const std::string& token) {
    const auto within = [&](std::string_view marker) { return marker.contains(token); };
    return !channels && !within(think_open) && !within(think_close) && std::ranges::none_of(dropped, within);
  });
  return out;
}

AnswerFormat AnswerFormat::with_described_calls() const {
  AnswerFormat out = *this;
  out.openers = {std::string(kDescribedOpener)};
  out.closers = {std::string(kDescribedCloser)};
  out.layout = described_layout();
  return out;
}

AnswerFormat find_answer_format(std::string_view source, std::span<const std::string> control_tokens,
                                std::string_view bos_token, std::string_view eos_token) {
  return FormatFinder(source, control_tokens, bos_token, eos_token).find();
}

}  // namespace forge::text

#include "session/constraint/call_rules.h"

#include <algorithm>
#include <utility>

#include "session/constraint/reasoning_gate.h"
#include "text/answer/format_table.h"

namespace forge::session {
namespace {

using text::CallLayout, text::CallPiece, text::kChannelMarkers;
using Kind = CallPiece::Kind;
using Pieces = std::vector<CallPiece>;

CallPiece piece(Kind kind, std::string text, std::vector<Pieces> parts = {}) {
  return {.kind = kind, .text = std::move(text), .parts = std::move(parts)};
}

class RulesFinder {
 public:
  RulesFinder(const text::AnswerFormat& format, const OfferedCalls& offered, std::string_view prompt,
              std::span<const std::string> turn_ends)
      : format_(format), offered_(offered), prompt_(prompt), turn_ends_(turn_ends) {}

  CallRules required() {
    CallRules rules;
    if (format_.channels) {
      std::vector<Pieces> alternatives{calls(format_.layout, {}), calls(role_recipient(" "), {})};
      if (!offered_.answer.empty())
        for (const auto header : kFinalHeaders) alternatives.push_back(answer_behind(std::string(header)));
      rules.pieces = choice(std::move(alternatives));
      if (!rules.pieces.empty()) rules.pieces.insert(rules.pieces.begin(), thoughts());
      return rules;
    }
    rules.gate = reasoning_gate(format_, prompt_);
    const auto prompt = rules.gate ? std::string_view() : prompt_;
    rules.pieces = calls(format_.layout, prompt);
    if (!offered_.answer.empty()) {
      if (format_.is_bare() || rules.pieces.empty()) return {};
      auto answer = answer_behind(format_.recipients ? std::string(text::kRecipientMark) + "all\n" : std::string());
      text::trim_literals(answer, prompt, turn_ends_);
      rules.pieces = choice({std::move(rules.pieces), std::move(answer)});
    }
    if (rules.gate && !rules.pieces.empty())  // between reasoning and a call
      for (int i = 0; i < 2; ++i)
        rules.pieces.insert(rules.pieces.begin(), piece(Kind::kOptional, {}, {{piece(Kind::kLiteral, "\n")}}));
    return rules;
  }

  CallRules optional() {
    CallRules rules{.pieces = {}, .gate = ConstraintGate{.markers = {}, .opener = {}}};
    auto& gate = *rules.gate;
    gate.may_end = gate.keeps_marker = true;
    std::vector<Pieces> alternatives;
    const auto add = [&](const std::string& marker, const CallLayout& layout) {
      gate.markers.push_back(marker);
      alternatives.push_back(calls(layout, {}));
    };
    if (format_.channels) {
      // A message's header begins in the prompt, or behind the message before.
      add(format_.layout.open, format_.layout);
      const auto layout = role_recipient(std::string(kChannelMarkers.start) + "assistant ");
      add(layout.open, layout);
      gate.before = prompt_end();
    } else if (format_.recipients || format_.is_bare()) {
      // Only with a tool's name this is a call.
      for (const auto& name : text::tool_names(offered_.tools))
        gate.markers.push_back(format_.layout.open + name + format_.layout.name_end.substr(0, 1));
      alternatives.push_back(calls(format_.layout, {}));
      gate.at_start = !format_.recipients;
      if (format_.recipients) gate.before = prompt_end();
    } else {
      for (const auto* list : {&format_.openers, &format_.elements})
        for (const auto& marker : *list) {
          // Models leave out what stands in front of the innermost marker.
          const auto at = format_.layout.open.find(marker);
          if (at == std::string::npos) continue;
          auto layout = format_.layout;
          layout.open.erase(0, at);
          add(marker, layout);
        }
    }
    if (const auto reasoning = reasoning_gate(format_, prompt_); reasoning && !format_.channels) {
      gate.reasoning_open = reasoning->opener;
      gate.reasoning_close = format_.think_close;
    }
    rules.pieces = choice(std::move(alternatives));
    return rules;
  }

 private:
  /// Harmony's other way: the recipient stands behind the role.
  [[nodiscard]] CallLayout role_recipient(const std::string& before) const {
    auto layout = format_.layout;
    layout.open = before + "to=functions.";
    layout.name_end = std::string(kChannelMarkers.channel) + "commentary json" + std::string(kChannelMarkers.message);
    return layout;
  }

  /// Messages of the channel analysis, each with the header of the next one.
  static CallPiece thoughts() {
    const std::string begin = std::string(kChannelMarkers.channel) + "analysis" + std::string(kChannelMarkers.message);
    const std::string end = std::string(kChannelMarkers.ends[0]) + std::string(kChannelMarkers.start) + "assistant";
    return piece(Kind::kRepeat, {},
                 {{piece(Kind::kLiteral, begin), piece(Kind::kText, "<|"), piece(Kind::kLiteral, end)}});
  }

  [[nodiscard]] Pieces calls(const CallLayout& layout, std::string_view prompt) const {
    auto pieces = text::call_grammar(layout, offered_.tools, offered_.only, offered_.several, offered_.strict);
    text::trim_literals(pieces, prompt, turn_ends_);
    return pieces;
  }

  /// The answer without calls, as JSON.
  [[nodiscard]] Pieces answer_behind(std::string header) const {
    Pieces out{piece(Kind::kSchema, std::string(offered_.answer))};
    if (!header.empty()) out.insert(out.begin(), piece(Kind::kLiteral, std::move(header)));
    return out;
  }

  static Pieces choice(std::vector<Pieces> parts) {
    std::erase_if(parts, [](const Pieces& part) { return part.empty(); });
    if (parts.empty()) return {};
    if (parts.size() == 1) return std::move(parts[0]);
    return {piece(Kind::kChoice, {}, std::move(parts))};
  }

  [[nodiscard]] std::string prompt_end() const {
    constexpr std::size_t kBytes = 64;  // longer than any header of a turn
    return std::string(prompt_.substr(prompt_.size() - std::min(prompt_.size(), kBytes)));
  }

  const text::AnswerFormat& format_;
  const OfferedCalls& offered_;
  std::string_view prompt_;
  std::span<const std::string> turn_ends_;
};

}  // namespace

CallRules required_calls(const text::AnswerFormat& format, const OfferedCalls& offered, std::string_view prompt,
                         std::span<const std::string> turn_ends) {
  return RulesFinder(format, offered, prompt, turn_ends).required();
}

CallRules optional_calls(const text::AnswerFormat& format, const OfferedCalls& offered, std::string_view prompt,
                         std::span<const std::string> turn_ends) {
  return RulesFinder(format, offered, prompt, turn_ends).optional();
}

}  // namespace forge::session

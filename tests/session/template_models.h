#pragma once
// The chat templates of the reference data, each with a byte-level vocabulary that has the template's control tokens.

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "loader/gguf/gguf.h"
#include "session/constraint/reasoning_gate.h"
#include "tests/support/byte_vocabulary.h"
#include "tests/support/skip.h"
#include "text/answer/white_space.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::tests {

/// One template and what a server would know of its model.
struct TemplateModel {
  TemplateModel(std::string named, std::string template_source, std::vector<std::string> control_tokens,
                std::string end_of_turn, std::string rendered)
      : name(std::move(named)),
        source(std::move(template_source)),
        prompt(std::move(rendered)),
        file(image(std::move(control_tokens), std::move(end_of_turn))),
        gguf(loader::Gguf::from(std::as_bytes(std::span(file)))),
        tokenizer(text::Tokenizer::open(gguf)),
        format(session::answer_format_of(*tokenizer, source)) {
    if (!format.has_calls()) format = format.with_described_calls();
    for (const auto id : tokenizer->end_of_generation()) turn_ends.emplace_back(tokenizer->token_text(id));
  }

  static std::string image(std::vector<std::string> control, std::string end) {
    if (std::ranges::find(control, end) == control.end()) control.push_back(std::move(end));
    const auto eos = 256 + (std::ranges::find(control, control.back()) - control.begin());
    return byte_vocabulary(control, static_cast<std::uint32_t>(eos));
  }

  std::string name, source, prompt, file;
  loader::Gguf gguf;
  std::unique_ptr<text::Tokenizer> tokenizer;
  text::AnswerFormat format;
  std::vector<std::string> turn_ends;
};

/// All templates of the reference data, each with the prompt of a conversation with tools; none without the data.
inline std::vector<std::unique_ptr<TemplateModel>> template_models() {
  std::vector<std::unique_ptr<TemplateModel>> out;
  const auto path = reference_file("agents/toolcalls.json");
  if (path.empty()) return out;
  std::ifstream in(path), more(reference_path("chat/templates.json"));
  const auto file = nlohmann::json::parse(in), named = nlohmann::json::parse(more);
  for (const auto& [name, item] : file["templates"].items()) {
    auto source = item.value("template_source", "");
    const auto reference = item.value("template_ref", "");
    for (const auto& one : named)
      if (source.empty() && reference.ends_with(": " + one["name"].get<std::string>())) source = one["template"];
    std::string prompt;
    for (const auto& one : file["cases"])
      if (prompt.empty() && one["template"] == name && one.contains("tools")) prompt = one.value("prompt", "");
    auto control = item["special_tokens"].get<std::vector<std::string>>();
    const auto end = item["end_of_turn"][0].get<std::string>();
    std::erase(control, std::string(text::trimmed(end)));
    out.push_back(std::make_unique<TemplateModel>(name, source, control, std::string(text::trimmed(end)), prompt));
  }
  return out;
}

}  // namespace forge::tests

#include "tools/inspect/inspect_constraints.h"

#include <fmt/core.h>

#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "loader/gguf/gguf.h"
#include "support/error.h"
#include "support/json_text.h"
#include "text/constraint/constraint.h"
#include "text/constraint/regex_syntax.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::tools {
namespace {

using text::constraint::Constraint;
using text::constraint::RegularPool;
using text::constraint::TokenTrie;

/// The ids of `text` as the model would generate it: without the space that some tokenizers put before a text.
std::vector<std::int32_t> ids_of(const text::Tokenizer& tokenizer, const TokenTrie& trie, const std::string& text) {
  const auto ids = tokenizer.encode(text);
  std::string spelled;
  for (const auto id : ids) spelled += trie.bytes(id);
  return spelled == text ? ids : trie.spelled(text);
}

bool accepts(Constraint& constraint, const std::vector<std::int32_t>& ids) {
  for (const auto id : ids) {
    const auto at = static_cast<std::size_t>(id);
    if ((constraint.mask()[at / 32] >> at % 32 & 1U) == 0 || !constraint.accept(id)) return false;
  }
  return constraint.can_end();
}

}  // namespace

void inspect_constraints(const std::filesystem::path& model, std::istream& in, std::ostream& out) {
  const auto gguf = loader::Gguf::open(model);
  const auto tokenizer = text::Tokenizer::open(gguf);
  const auto trie = std::make_shared<const TokenTrie>(*tokenizer);
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    const auto job = nlohmann::json::parse(line, nullptr, false);
    ++number;
    const auto has = [&](const char* key) { return job.contains(key); };
    const bool ok = job.is_object() && has("text") && job["text"].is_string() &&
                    (has("gbnf") || has("schema") || (has("regex") && job["regex"].is_string()));
    if (!ok)
      throw Error(ErrorCode::kUsage, fmt::format("line {} is no constraint with a text", number), {},
                  R"(give {"regex": "...", "text": "..."})");
    if (!has("regex")) {
      out << "{\"refused\": "
          << json_string(fmt::format("not supported yet: {}", has("gbnf") ? "GBNF grammars" : "JSON schemas")) << "}\n";
      continue;
    }
    try {
      auto pool = std::make_unique<RegularPool>();
      const auto language = text::constraint::parse_regex(*pool, job["regex"].get<std::string>());
      const auto text = job["text"].get<std::string>();
      const auto ids = ids_of(*tokenizer, *trie, text);
      Constraint constraint(trie, std::move(pool), language);
      const bool spelled = text.empty() || !ids.empty();
      out << "{\"accepted\": " << (spelled && accepts(constraint, ids) ? "true" : "false") << "}\n";
    } catch (const Error& error) {
      out << "{\"refused\": " << json_string(error.line()) << "}\n";
    }
  }
}

}  // namespace forge::tools

#include "tools/run/run_constraint.h"

#include <optional>
#include <string>
#include <utility>

#include "session/constraint/constraints.h"
#include "session/constraint/reasoning_gate.h"
#include "support/error.h"
#include "support/os/console.h"

namespace forge::tools {
namespace {

using text::constraint::ConstraintSource;
using text::constraint::ConstraintSyntax;

constexpr std::size_t kConstraintBytesMax = std::size_t{16} << 20;

std::optional<ConstraintSource> source_of(const RunRequest& request) {
  if (request.regex) return ConstraintSource{ConstraintSyntax::kRegex, *request.regex};
  if (request.schema)
    return ConstraintSource{ConstraintSyntax::kJsonSchema, read_text(*request.schema, kConstraintBytesMax)};
  if (request.grammar)
    return ConstraintSource{ConstraintSyntax::kGbnf, read_text(*request.grammar, kConstraintBytesMax)};
  return std::nullopt;
}

/// Everything that answers need of one constraint.
struct RunConstraint {
  RunConstraint(const text::Tokenizer& of, std::size_t vocab) : constraints(of, vocab), tokenizer(of) {}
  session::Constraints constraints;
  const text::Tokenizer& tokenizer;
  text::AnswerFormat format;
  std::shared_ptr<session::CompiledConstraint> compiled;
};

}  // namespace

std::function<std::shared_ptr<runtime::TokenConstraint>(std::span<const std::int32_t>)> constraint_of(
    const RunRequest& request, session::Session& session) {
  const auto source = source_of(request);
  if (!source) return {};
  if (!session::has_tokenizer(session.file()))
    throw Error(ErrorCode::kTokenizer, "the model has no vocabulary, so its text cannot be constrained", {},
                "leave out --regex, --schema and --grammar");
  const auto& tokenizer = session.tokenizer();
  const bool raw = request.prompt.raw || request.tokens;
  const auto chat_template =
      session.file().find<std::string_view>("tokenizer.chat_template").value_or(std::string_view());
  const auto made = std::make_shared<RunConstraint>(tokenizer, session.executor().vocab());
  if (!raw && !chat_template.empty()) made->format = session::answer_format_of(tokenizer, chat_template);
  made->compiled = made->constraints.compile(*source);
  return [made](std::span<const std::int32_t> prompt) -> std::shared_ptr<runtime::TokenConstraint> {
    const auto gate = session::reasoning_gate(made->format, made->tokenizer.decode(prompt, true));
    return made->constraints.start(made->compiled, gate ? &*gate : nullptr);
  };
}

}  // namespace forge::tools

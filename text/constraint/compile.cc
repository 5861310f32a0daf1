#include "text/constraint/compile.h"

#include "support/error.h"
#include "text/constraint/constraint.h"

namespace forge::text::constraint {

std::shared_ptr<CompiledConstraint> compile(const ConstraintSource& source, std::shared_ptr<const TokenTrie> trie) {
  if (source.syntax != ConstraintSyntax::kRegex)
    throw Error(ErrorCode::kUsage, source.syntax == ConstraintSyntax::kGbnf ? "GBNF grammars are not supported yet"
                                                                            : "JSON schemas are not supported yet");
  auto compiled = std::make_shared<CompiledConstraint>(source.text, std::move(trie));
  (void)Constraint(compiled);  // throws what is wrong with it
  return compiled;
}

}  // namespace forge::text::constraint

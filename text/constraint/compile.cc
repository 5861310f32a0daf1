#include "text/constraint/compile.h"

#include "support/error.h"
#include "text/constraint/call_language.h"
#include "text/constraint/gbnf.h"
#include "text/constraint/regex_syntax.h"
#include "text/constraint/schema/schema.h"

namespace forge::text::constraint {

CompiledConstraint::CompiledConstraint(ConstraintSource source, std::shared_ptr<const TokenTrie> trie,
                                       const ConstraintLimits& limits)
    : source_(std::move(source)), trie_(std::move(trie)), limits_(limits) {
  build();
}

void CompiledConstraint::build() {
  ++generation_;
  built_ = false;
  masks_.reset();
  dfa_.reset();
  language_ = {};
  pool_ = std::make_unique<RegularPool>(limits_.bytes, limits_.steps);
  dfa_ = std::make_unique<RegularDfa>(*pool_);
  masks_ = std::make_unique<MaskMaker>(*pool_, *dfa_, *trie_);
  switch (source_.syntax) {
    case ConstraintSyntax::kRegex:
      language_.start = parse_regex(*pool_, source_.text);
      break;
    case ConstraintSyntax::kGbnf:
      language_ = parse_gbnf(*pool_, source_.text);
      break;
    case ConstraintSyntax::kJsonSchema:
      language_ = compile_schema(*pool_, source_.text);
      break;
    case ConstraintSyntax::kCalls:
      language_ = compile_calls(*pool_, source_.text);
      break;
  }
  if (pool_->is_empty(language_.start)) throw Error(ErrorCode::kUsage, "the constraint allows no text");
  built_ = true;
  measure();
}

std::shared_ptr<CompiledConstraint> compile(const ConstraintSource& source, std::shared_ptr<const TokenTrie> trie,
                                            const ConstraintLimits& limits) {
  return std::make_shared<CompiledConstraint>(source, std::move(trie), limits);
}

}  // namespace forge::text::constraint

#pragma once
// forge-run's --regex, --schema and --grammar.

#include <functional>
#include <memory>
#include <span>

#include "runtime/token_constraint.h"
#include "session/session.h"
#include "tools/run/run_options.h"

namespace forge::tools {

/// What makes the constraint of each answer (GenerateOptions::constraint); empty if the request has none. A model that
/// reasons does so before its constrained answer. `session` must outlive the result. Errors: kUsage for a constraint
/// that is refused; kIo for a file that cannot be read; kTokenizer for a model without a vocabulary.
[[nodiscard]] std::function<std::shared_ptr<runtime::TokenConstraint>(std::span<const std::int32_t>)> constraint_of(
    const RunRequest& request, session::Session& session);

}  // namespace forge::tools

#pragma once
// Embeddings of texts without an engine: one sequence at a time, for forge-run and tests. The server uses
// runtime/engine.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "session/sequences.h"

namespace forge::session {

/// How the hidden rows of a text become one vector: their mean, the first one (of a CLS token), or the last one.
enum class Pooling : std::uint8_t { kMean, kFirst, kLast };

/// The file's "<family>.pooling_type"; kLast if it says nothing, because the last row has seen the whole text. nullopt
/// for kinds of pooling that need an extra head (rank). Source of the numbers: gguf's constants (PoolingType).
[[nodiscard]] std::optional<Pooling> find_pooling(const loader::Gguf& file);
/// The same. Errors: kModelUnsupported in place of nullopt.
[[nodiscard]] Pooling read_pooling(const loader::Gguf& file);

/// The pooled vector [hidden_width] of a text, not normalised. Errors: kPrompt if `ids` are empty or longer than the
/// context; kUsage if the program returns no hidden rows.
/// Precondition: sequence 0 of `sequences` is empty; it is again afterwards.
[[nodiscard]] std::vector<float> embed(Sequences& sequences, std::span<const std::int32_t> ids, Pooling pooling);

}  // namespace forge::session

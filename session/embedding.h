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
#include "session/open_model.h"
#include "session/sequences.h"

namespace forge::session {

/// How the hidden rows of a text become one vector: their mean, the first one (of a CLS token), or the last one. kRank:
/// the first one, of which a reranker's head has made a score.
enum class Pooling : std::uint8_t { kMean, kFirst, kLast, kRank };

inline constexpr const char* kPoolings = "auto|mean|cls|last";  ///< values of --pooling
inline constexpr const char* kPoolingHelp =
    "embedding of a text: the mean over its tokens, its first token (cls) or its last one; auto: as the model file "
    "says; default auto";

/// The pooling that `choice`, one of kPoolings, names; auto: the file's "<family>.pooling_type", or kLast if it says
/// nothing, because the last row has seen the whole text. nullopt for a file's pooling that is not supported. Source of
/// the numbers: gguf's constants (PoolingType). Errors: kUsage for a choice other than auto for a reranker.
[[nodiscard]] std::optional<Pooling> find_pooling(const OpenedModel& model, std::string_view choice = "auto");
/// The pooling for an embedding. Errors: kModelUnsupported in place of nullopt and for a reranker, which gives no
/// vectors.
[[nodiscard]] Pooling read_pooling(const OpenedModel& model, std::string_view choice = "auto");

/// The pooled vector [hidden_width] of a text, not normalised. Errors: kPrompt if `ids` are empty or longer than the
/// context; kUsage if the program returns no hidden rows.
/// Precondition: sequence 0 of `sequences` is empty; it is again afterwards.
[[nodiscard]] std::vector<float> embed(Sequences& sequences, std::span<const std::int32_t> ids, Pooling pooling);

}  // namespace forge::session

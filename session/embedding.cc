#include "session/embedding.h"

#include <fmt/format.h>

#include "runtime/program_facts.h"
#include "session/generate.h"
#include "support/error.h"

namespace forge::session {

namespace {

enum : std::uint32_t { kNone, kMean, kCls, kLast, kRank };

std::uint32_t pooling_type(const loader::Gguf& file) {
  const auto family = file.find<std::string_view>("general.architecture").value_or("");
  return file.find<std::uint32_t>(std::string(family) + ".pooling_type").value_or(kLast);
}

}  // namespace

std::optional<Pooling> find_pooling(const OpenedModel& model, std::string_view choice) {
  const auto type = pooling_type(*model.file);
  if (type == kRank && runtime::is_encoder(*model.program)) {  // the graph ends with the head
    if (choice == "auto") return Pooling::kRank;
    throw Error(ErrorCode::kUsage, "--pooling is given for a reranker, which makes scores instead of embeddings", {},
                "leave out --pooling");
  }
  if (choice != "auto") return choice == "mean" ? Pooling::kMean : choice == "cls" ? Pooling::kFirst : Pooling::kLast;
  switch (type) {
    case kMean:
      return Pooling::kMean;
    case kCls:
      return Pooling::kFirst;
    case kNone:
    case kLast:
      return Pooling::kLast;
    default:
      return std::nullopt;
  }
}

Pooling read_pooling(const OpenedModel& model, std::string_view choice) {
  const auto pooling = find_pooling(model, choice);
  if (pooling == Pooling::kRank)
    throw Error(ErrorCode::kModelUnsupported, "the model is a reranker, which makes no embeddings", {},
                "rank texts with it: forge-serve, /v1/rerank");
  if (pooling) return *pooling;
  throw Error(ErrorCode::kModelUnsupported, fmt::format("pooling type {} is not supported", pooling_type(*model.file)),
              "mean, cls and last are", "choose one of them with --pooling, or use another embedding model");
}

/// Rows are summed in the order of their tokens, so the mean does not depend on how the text is cut into steps.
std::vector<float> embed(Sequences& sequences, std::span<const std::int32_t> ids, Pooling pooling) {
  check_prompt(ids, sequences.context());
  std::vector<double> sum;
  std::size_t row = 0;
  sequences.hidden_rows(0, ids, [&](std::span<const float> rows) {
    const std::size_t width = sequences.hidden_width();
    sum.resize(width);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t token = row + i / width;
      const bool counts = pooling == Pooling::kMean || token == (pooling == Pooling::kFirst ? 0 : ids.size() - 1);
      if (counts) sum[i % width] += static_cast<double>(rows[i]);
    }
    row += rows.size() / width;
  });
  const double count = pooling == Pooling::kMean ? static_cast<double>(ids.size()) : 1;
  std::vector<float> out;
  for (const double value : sum) out.push_back(static_cast<float>(value / count));
  sequences.trim(0, 0);
  return out;
}

}  // namespace forge::session

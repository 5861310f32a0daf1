#include "serve/rerank.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "session/unit_vector.h"
#include "support/json_text.h"

namespace forge::serve {
namespace {

/// Cosines of the first vector and each of the others; nullopt if a vector has no length.
std::optional<std::vector<double>> cosines(const std::vector<std::vector<float>>& rows) {
  std::vector<double> scores;
  const auto query = session::unit_vector(rows[0], rows[0].size());
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto document = session::unit_vector(rows[i], rows[i].size());
    if (!query || !document) return std::nullopt;
    scores.push_back(std::inner_product(query->begin(), query->end(), document->begin(), 0.0));
  }
  return scores;
}

/// The head's scores, as they are: logits, which may be negative and above 1.
std::optional<std::vector<double>> head_scores(const std::vector<std::vector<float>>& rows) {
  std::vector<double> scores;
  for (const auto& row : rows) {
    if (!std::isfinite(row[0])) return std::nullopt;
    scores.push_back(row[0]);
  }
  return scores;
}

class RerankAnswer final : public Answer {
 public:
  RerankAnswer(ServedModel& model, RerankSpec spec, Wake wake)
      : model_(model), spec_(std::move(spec)), batch_(model, std::move(spec_.inputs), std::move(wake)) {}

  Part poll() override {
    if (!batch_.poll()) return {};
    if (batch_.failure()) return {.head = error_response(*batch_.failure()), .done = true};
    const auto scores = model_.ranks() ? head_scores(batch_.rows()) : cosines(batch_.rows());
    return {.head = scores ? Response{.body = body(*scores)} : error_response(no_number()), .done = true};
  }

 private:
  [[nodiscard]] std::string body(const std::vector<double>& scores) const {
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return scores[i]; });
    order.resize(std::min(order.size(), spec_.top_n));
    JsonWriter json(JsonLayout::kCompact);
    json.open('{').field("id", spec_.id).field("object", "list").field("model", model_.name()).open("results", '[');
    for (const auto i : order) {
      json.open('{').field("index", i).field("relevance_score", scores[i]);
      if (spec_.return_documents) json.open("document", '{').field("text", spec_.documents[i]).close();
      json.close();
    }
    json.close().open("usage", '{').field("prompt_tokens", batch_.tokens()).field("total_tokens", batch_.tokens());
    return json.close().close().take();
  }

  ServedModel& model_;
  RerankSpec spec_;
  RowBatch batch_;
};

}  // namespace

std::unique_ptr<Answer> rerank_answer(ServedModel& model, RerankSpec spec, Wake wake) {
  return std::make_unique<RerankAnswer>(model, std::move(spec), std::move(wake));
}

}  // namespace forge::serve

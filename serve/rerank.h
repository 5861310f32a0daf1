#pragma once
// The answer of /v1/rerank: documents in the order of their relevance to a query. The score of a document is what a
// reranker's head gives for the pair of both texts or, of other models, the cosine of their embeddings. Sources of the
// JSON form: the API references of Jina AI and of Cohere.

#include <memory>
#include <string>
#include <vector>

#include "serve/row_batch.h"

namespace forge::serve {

struct RerankSpec {
  /// A reranker: query and document as one input, for each document. Others: the query, then each document.
  RowInputs inputs;
  std::vector<std::string> documents;
  std::size_t top_n = 0;          ///< how many documents are returned
  bool return_documents = false;  ///< with their texts
  std::string id;                 ///< of the request
};

/// Creates the answer; may be called from any thread. The model must have a pooling and outlive the answer.
[[nodiscard]] std::unique_ptr<Answer> rerank_answer(ServedModel& model, RerankSpec spec, Wake wake);

}  // namespace forge::serve

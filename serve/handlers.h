#pragma once
// The handlers: one function per route. api.cc has the table that maps routes to them.

#include <memory>
#include <string_view>

#include "serve/api.h"

namespace forge::serve {

/// One request, as its handler gets it.
struct Call {
  Api& api;
  HttpRequest request;
  std::string rest;  ///< the {id} of the route's path; empty if it has none
  Wake wake;         ///< to be called when the answer has something new
};

struct Handlers {
  using Result = std::unique_ptr<Answer>;
  static Result health(Call& call);
  static Result ready(Call& call);
  static Result metrics(Call& call);
  static Result models(Call& call);
  static Result model(Call& call);
  static Result completions(Call& call);
  static Result chat(Call& call);
  static Result embeddings(Call& call);
  static Result rerank(Call& call);
  static Result generate(Call& call);
  static Result generate_stream(Call& call);
  static Result status(Call& call);
  static Result cancel(Call& call);
  static Result tokenize(Call& call);
  static Result detokenize(Call& call);
  static Result apply_template(Call& call);

 private:
  struct Job;
  static Read<ServedModel*> generator(Call& call, const std::string& name);
  static Read<ServedModel*> embedder(Call& call, const std::string& name);
  static Result run(Call& call, Job job);
  static Result generate(Call& call, bool stream);
};

/// An answer that is complete at once.
[[nodiscard]] std::unique_ptr<Answer> answer_of(Response response);
[[nodiscard]] std::unique_ptr<Answer> answer_of(const ApiError& error);

}  // namespace forge::serve

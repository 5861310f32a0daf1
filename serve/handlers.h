#pragma once
// One function a route; for api.cc, which has the table.

#include <memory>
#include <string_view>

#include "serve/api.h"

namespace forge::serve {

/// What a handler works with. `rest`: what stands for {id} in the route's path.
struct Call {
  Api& api;
  HttpRequest request;
  std::string rest;
  Wake wake;
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
  static Result generate(Call& call);
  static Result generate_stream(Call& call);
  static Result status(Call& call);
  static Result cancel(Call& call);
  static Result tokenize(Call& call);
  static Result detokenize(Call& call);
  static Result apply_template(Call& call);

 private:
  struct Job;
  static Result run(Call& call, Job job);
  static Result generate(Call& call, bool stream);
};

[[nodiscard]] std::unique_ptr<Answer> answer_of(Response response);
[[nodiscard]] std::unique_ptr<Answer> answer_of(const ApiError& error);

}  // namespace forge::serve

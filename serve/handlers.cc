#include "serve/handlers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serve/embeddings.h"
#include "serve/protocol/answers.h"
#include "serve/protocol/dialect.h"
#include "serve/protocol/request_json.h"
#include "serve/rerank.h"
#include "support/json_text.h"

namespace forge::serve {
namespace {

constexpr std::size_t kRestShown = 80;

std::string_view health_name(engine::Health health) {
  switch (health) {
    case engine::Health::kHealthy:
      return "healthy";
    case engine::Health::kDegraded:
      return "degraded";
    default:
      return "unhealthy";
  }
}

std::unique_ptr<Answer> state_answer(unsigned status, std::string_view state) {
  JsonWriter json(JsonLayout::kCompact);
  Response response{.status = status, .body = json.open('{').field("status", state).close().take()};
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  return answer_of(std::move(response));
}

std::string model_json(const ServedModel& model) {
  JsonWriter json(JsonLayout::kCompact);
  json.open('{').field("id", model.name()).field("object", "model").field("created", model.created());
  return json.field("owned_by", "forge").field("max_model_len", model.context()).close().take();
}

ApiError unknown_request(const std::string& id) {
  return {.status = 404,
          .code = "unknown_request",
          .message = fmt::format("there is no request '{}'", printable(id, kRestShown))};
}

}  // namespace

/// A generation to start, after its route has parsed the body and encoded the prompts.
struct Handlers::Job {
  ServedModel* model = nullptr;
  GenerationParams params;
  std::vector<std::vector<std::int32_t>> prompts;
  std::string_view input = "prompt";
  std::optional<std::string> chat;  ///< text of a chat's prompt, if its answer is constrained
  std::unique_ptr<Dialect> (*dialect)(ReplyHead) = nullptr;
  bool stream = false, include_usage = false, include_reasoning = true;
  std::optional<std::size_t> thinking_budget;
  MakeConstraint calls;                       ///< what constrains a chat's calls; empty: nothing
  std::shared_ptr<const AnswerRules> answer;  ///< of a chat
};

std::unique_ptr<Answer> answer_of(Response response) {
  return std::make_unique<ReadyAnswer>(std::move(response));
}
std::unique_ptr<Answer> answer_of(const ApiError& error) {
  return answer_of(error_response(error));
}

Handlers::Result Handlers::health(Call& call) {
  auto* model = call.api.model_.load();
  if (model == nullptr) return state_answer(200, "loading");
  const auto health = model->engine().status().health;
  return state_answer(health == engine::Health::kUnhealthy ? 503 : 200, health_name(health));
}

Handlers::Result Handlers::ready(Call& call) {
  auto* model = call.api.model_.load();
  if (model == nullptr) return state_answer(503, "loading");
  if (call.api.draining_) return state_answer(503, "draining");
  if (model->engine().status().health == engine::Health::kUnhealthy) return state_answer(503, "unhealthy");
  return state_answer(200, "ready");
}

Handlers::Result Handlers::metrics(Call& call) {
  auto* model = call.api.model_.load();
  std::optional<engine::EngineStatus> status;
  if (model != nullptr) status = model->engine().status();
  return answer_of(Response{.body = call.api.metrics_.text(status ? &*status : nullptr),
                            .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

Handlers::Result Handlers::models(Call& call) {
  JsonWriter json(JsonLayout::kCompact);
  json.open('{').field("object", "list").open("data", '[');
  if (const auto* model = call.api.model_.load()) json.raw_item(model_json(*model));
  return answer_of(Response{.body = json.close().close().take()});
}

Handlers::Result Handlers::model(Call& call) {
  const auto* model = call.api.model_.load();
  if (model == nullptr || model->name() != call.rest)
    return answer_of(ApiError{.status = 404,
                              .code = "model_not_found",
                              .message = fmt::format("there is no model '{}'", printable(call.rest, kRestShown)),
                              .param = "model"});
  return answer_of(Response{.body = model_json(*model)});
}

Handlers::Result Handlers::run(Call& call, Job job) {
  auto& api = call.api;
  MakeConstraint constraint = std::move(job.calls);
  if (job.params.structured) {
    auto made = job.model->constraint(*job.params.structured, job.chat);
    if (!made) return answer_of(made.error());
    constraint = *std::move(made);
  }
  if (job.thinking_budget && job.answer)
    constraint = job.model->with_thinking_budget(std::move(constraint), *job.answer, *job.thinking_budget);
  use_defaults_of(job.model->sampling(), job.params);
  const auto most = api.options_.request_timeout;
  job.params.timeout = std::min(job.params.timeout.value_or(most), most);
  ReplyHead head{
      .id = call.request.id,
      .model = job.model->name(),
      .created =
          std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(),
      .logprobs = job.params.logprobs,
      .include_usage = job.include_usage,
      .reasoning = job.include_reasoning,
      .tokenizer = &job.model->tokenizer()};
  auto generation = Generation::start(
      *job.model, {.prompts = std::move(job.prompts),
                   .params = std::move(job.params),
                   .constraint = std::move(constraint),
                   .input = job.input,
                   .answer = std::move(job.answer),
                   .wake = std::move(call.wake),
                   .between_tokens = [&metrics = api.metrics_](auto time) { metrics.between_tokens(time); }});
  if (!generation) return answer_of(generation.error());
  auto ticket = std::make_unique<Registry::Ticket>(api.registry_, call.request.id, *std::move(generation));
  auto dialect = job.dialect(std::move(head));
  return job.stream ? stream_answer(std::move(ticket), std::move(dialect))
                    : whole_answer(std::move(ticket), std::move(dialect));
}

/// The model for a route that generates text or renders conversations. Errors: those of model_for; 400 for an encoder.
Read<ServedModel*> Handlers::generator(Call& call, const std::string& name) {
  const auto model = call.api.model_for(name);
  if (model && (*model)->engine().encodes())
    return std::unexpected(bad_request(
        "not_supported", "the model is an encoder, which generates no text: use /v1/embeddings or /v1/rerank"));
  return model;
}

Handlers::Result Handlers::completions(Call& call) {
  auto body = read_completion(call.request.body);
  if (!body) return answer_of(body.error());
  const auto model = generator(call, body->model);
  if (!model) return answer_of(model.error());
  Job job{.model = *model, .params = std::move(body->params), .dialect = completion_dialect};
  job.stream = body->stream;
  job.include_usage = body->include_usage;
  for (const auto& prompt : body->prompts) {
    auto ids = (*model)->encode(prompt);
    if (!ids) return answer_of(ids.error());
    job.prompts.push_back(*std::move(ids));
  }
  return run(call, std::move(job));
}

Handlers::Result Handlers::chat(Call& call) {
  auto body = read_chat(call.request.body);
  if (!body) return answer_of(body.error());
  const auto model = generator(call, body->model);
  if (!model) return answer_of(model.error());
  auto text = (*model)->render(*body);
  if (!text) return answer_of(text.error());
  auto ids = (*model)->encode(*text);
  if (!ids) return answer_of(ids.error());
  auto calls = (*model)->call_constraint(*body, *text);
  if (!calls) return answer_of(calls.error());
  if (*calls && body->params.structured) {
    if (body->tool_choice.kind != ToolChoice::Kind::kAuto)
      return answer_of(bad_request(
          "invalid_value",
          fmt::format("tools that must be called and {} cannot be used together", body->params.structured->member),
          "tool_choice"));
    body->params.structured.reset();  // the constraint of calls has it
  }
  Job job{.model = *model, .params = std::move(body->params), .input = "messages", .dialect = chat_dialect};
  if (job.params.structured) job.chat = *text;
  job.answer = (*model)->answer_rules(*body, *std::move(text), static_cast<bool>(*calls));
  job.calls = *std::move(calls);
  job.include_reasoning = body->include_reasoning;
  job.thinking_budget = body->thinking_budget;
  job.stream = body->stream;
  job.include_usage = body->include_usage;
  job.prompts.push_back(*std::move(ids));
  return run(call, std::move(job));
}

/// The model for a route that makes vectors or scores. Errors: those of model_for; 400 if the program or the file has
/// no pooled rows.
Read<ServedModel*> Handlers::embedder(Call& call, const std::string& name) {
  const auto model = call.api.model_for(name);
  if (!model) return model;
  if ((*model)->engine().executor().hidden_width() == 0)
    return std::unexpected(bad_request("not_supported", "no embeddings: the plan was compiled without --embeddings"));
  if (!(*model)->pooling())
    return std::unexpected(bad_request("not_supported", "no embeddings: the model's pooling type is not supported"));
  return model;
}

Handlers::Result Handlers::embeddings(Call& call) {
  auto body = read_embeddings(call.request.body);
  if (!body) return answer_of(body.error());
  const auto model = embedder(call, body->model);
  if (!model) return answer_of(model.error());
  if ((*model)->ranks())
    return answer_of(bad_request("not_supported", "no embeddings: the model is a reranker: use /v1/rerank"));
  if (auto why = (*model)->refuses_dimensions(body->dimensions))
    return answer_of(bad_request("invalid_value", *std::move(why), "dimensions"));
  const auto most = call.api.options_.request_timeout;
  EmbeddingsSpec spec{.inputs = {}, .base64 = body->base64, .dimensions = body->dimensions};
  spec.inputs.timeout = std::min(body->timeout.value_or(most), most);
  for (const auto& input : body->inputs) {
    auto ids = (*model)->encode_input(input);
    if (!ids) return answer_of(ids.error());
    spec.inputs.ids.push_back(*std::move(ids));
  }
  return embeddings_answer(**model, std::move(spec), std::move(call.wake));
}

Handlers::Result Handlers::rerank(Call& call) {
  auto body = read_rerank(call.request.body);
  if (!body) return answer_of(body.error());
  const auto found = embedder(call, body->model);
  if (!found) return answer_of(found.error());
  auto& model = **found;
  const auto most = call.api.options_.request_timeout;
  RerankSpec spec{.inputs = {.first = model.ranks() ? "documents" : "query", .others = "documents"},
                  .top_n = body->top_n,
                  .return_documents = body->return_documents,
                  .id = call.request.id};
  spec.inputs.timeout = std::min(body->timeout.value_or(most), most);
  const auto add = [&](Read<std::vector<std::int32_t>> ids) {
    if (!ids) return false;
    spec.inputs.ids.push_back(*std::move(ids));
    return true;
  };
  if (!model.ranks() && !add(model.encode_input(body->query)))
    return answer_of(bad_request("invalid_value", "the query is empty", "query"));
  for (const auto& document : body->documents)
    if (!add(model.ranks() ? model.encode_pair(body->query, document) : model.encode_input(document)))
      return answer_of(bad_request("invalid_value", "a document is empty", "documents"));
  spec.documents = std::move(body->documents);
  return rerank_answer(model, std::move(spec), std::move(call.wake));
}

Handlers::Result Handlers::generate(Call& call, bool stream) {
  auto body = read_generate(call.request.body);
  if (!body) return answer_of(body.error());
  const auto model = generator(call, body->model);
  if (!model) return answer_of(model.error());
  auto ids = (*model)->encode(body->prompts.front());
  if (!ids) return answer_of(ids.error());
  Job job{.model = *model, .params = std::move(body->params), .dialect = generate_dialect};
  job.stream = stream;
  job.prompts.push_back(*std::move(ids));
  return run(call, std::move(job));
}

Handlers::Result Handlers::generate(Call& call) {
  return generate(call, false);
}
Handlers::Result Handlers::generate_stream(Call& call) {
  return generate(call, true);
}

Handlers::Result Handlers::status(Call& call) {
  const auto status = call.api.registry_.status(call.rest);
  if (!status) return answer_of(unknown_request(call.rest));
  using State = RequestStatus::State;
  const bool finished = status->state == State::kFinished;
  JsonWriter json(JsonLayout::kCompact);
  json.open('{').field("request_id", call.rest);
  json.field("status", finished ? "finished" : status->state == State::kRunning ? "running" : "waiting");
  json.field("finished", finished).field("prompt_tokens", status->prompt_tokens);
  json.field("generated_tokens", status->generated_tokens);
  json.raw("finish_reason", finished ? json_string(engine::finish_reason_name(status->finish)) : "null");
  return answer_of(Response{.body = json.close().take()});
}

Handlers::Result Handlers::cancel(Call& call) {
  const auto cancelled = call.api.registry_.cancel(call.rest);
  if (!cancelled) return answer_of(unknown_request(call.rest));
  JsonWriter json(JsonLayout::kCompact);
  json.open('{').field("request_id", call.rest).field("cancelled", *cancelled);
  return answer_of(Response{.body = json.close().take()});
}

Handlers::Result Handlers::tokenize(Call& call) {
  const auto body = read_tokenize(call.request.body);
  if (!body) return answer_of(body.error());
  const auto model = call.api.model_for({});
  if (!model) return answer_of(model.error());
  const auto ids = (*model)->tokenizer().encode(
      body->text, {.add_special = body->add_special, .parse_special = body->parse_special});
  JsonWriter json(JsonLayout::kCompact);
  json.open('{').field("tokens", std::span(ids)).field("count", ids.size());
  return answer_of(Response{.body = json.field("max_model_len", (*model)->context()).close().take()});
}

Handlers::Result Handlers::detokenize(Call& call) {
  const auto ids = read_detokenize(call.request.body);
  if (!ids) return answer_of(ids.error());
  const auto model = call.api.model_for({});
  if (!model) return answer_of(model.error());
  const auto& tokenizer = (*model)->tokenizer();
  const auto outside = std::ranges::find_if(*ids, [&](auto id) { return id >= tokenizer.vocab_size(); });
  if (outside != ids->end())
    return answer_of(bad_request(
        "invalid_value",
        fmt::format("token {} is not in the vocabulary of {} tokens", *outside, tokenizer.vocab_size()), "tokens"));
  JsonWriter json(JsonLayout::kCompact);
  const auto text = tokenizer.decode(*ids, true);
  json.open('{').field("content", text).field("prompt", text);
  return answer_of(Response{.body = json.close().take()});
}

Handlers::Result Handlers::apply_template(Call& call) {
  const auto body = read_chat(call.request.body);
  if (!body) return answer_of(body.error());
  const auto model = generator(call, body->model);
  if (!model) return answer_of(model.error());
  const auto text = (*model)->render(*body);
  if (!text) return answer_of(text.error());
  JsonWriter json(JsonLayout::kCompact);
  return answer_of(Response{.body = json.open('{').field("prompt", *text).close().take()});
}

}  // namespace forge::serve

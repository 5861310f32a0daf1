// Fuzzes the readers of HTTP request bodies (serve/protocol/request_json.h). The input is a body that every route's
// reader gets. Nothing may be thrown. A refusal has a code and a one-line message. Accepted values are within the
// bounds that the engine relies on, and an accepted conversation must be readable by text/chat.

#include <cmath>

#include "serve/protocol/request_json.h"
#include "tests/fuzz/target.h"
#include "text/chat/chat.h"

namespace {

using namespace forge;
using namespace forge::serve;

template <class T>
bool taken(const Read<T>& read) {
  if (read) return true;
  const auto& error = read.error();
  fuzz::expect(error.status == 400 && !error.code.empty() && !error.message.empty(), "a refusal says what is wrong");
  fuzz::expect(error.message.find('\n') == std::string::npos, "a refusal is one line");
  fuzz::expect(!error_json(error).empty(), "a refusal is JSON");
  return false;
}

void check(const GenerationParams& params) {
  const auto& sampling = params.sampling;
  fuzz::expect(sampling.temperature >= 0 && sampling.temperature <= 2, "temperature");
  fuzz::expect(sampling.top_p >= 0 && sampling.top_p <= 1 && sampling.top_k >= 0, "top_p, top_k");
  fuzz::expect(params.samples >= 1 && params.samples <= engine::kSamplesMax, "samples");
  fuzz::expect(params.top_logprobs <= engine::kTopLogprobsMax, "top_logprobs");
  for (const auto& bias : sampling.logit_bias) fuzz::expect(bias.token >= 0 && std::isfinite(bias.bias), "logit_bias");
  for (const auto& stop : params.stops) fuzz::expect(!stop.empty(), "stop");
  fuzz::expect(params.stop_tokens.size() <= 1024 && sampling.logit_bias.size() <= 1024, "lists that samples copy");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::refuse_or_read([&] {
    const auto text = fuzz::text_of(data, size);
    if (const auto body = read_completion(text); taken(body)) {
      check(body->params);
      fuzz::expect(!body->prompts.empty(), "a prompt");
    }
    if (const auto body = read_generate(text); taken(body)) {
      check(body->params);
      fuzz::expect(body->prompts.size() == 1 && body->params.samples == 1, "one prompt, one sample");
    }
    if (const auto body = read_chat(text); taken(body)) {
      check(body->params);
      try {
        (void)text::parse_chat_request(body->conversation);
      } catch (const Error& error) {  // nested too deeply or with huge integers: a usage error
        fuzz::expect(error.code() == ErrorCode::kUsage, error.line());
      }
    }
    if (const auto body = read_embeddings(text); taken(body)) fuzz::expect(!body->inputs.empty(), "an input");
    if (const auto body = read_rerank(text); taken(body))
      fuzz::expect(body->top_n > 0 && body->top_n <= body->documents.size(), "some of the documents are returned");
    (void)taken(read_tokenize(text));
    (void)taken(read_detokenize(text));
  });
}

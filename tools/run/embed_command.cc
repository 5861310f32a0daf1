#include "tools/run/embed_command.h"

#include "session/embedding.h"
#include "session/model_file.h"
#include "session/unit_vector.h"
#include "support/error.h"
#include "support/json_text.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"
#include "tools/run/run_report.h"

namespace forge::tools {
namespace {

/// The token ids of the prompt. The text is used as it is, without a chat template; control tokens in it are text.
std::vector<std::int32_t> ids_of(const RunRequest& request, session::Session& session) {
  if (request.tokens) return parse_tokens(*request.tokens, session.executor().vocab());
  return session.tokenizer().encode(read_prompt(request.prompt), {.add_special = true});
}

/// `vector` as a JSON list, divided by its length.
std::string unit_json(const std::vector<float>& vector) {
  const auto unit = session::unit_vector(vector, vector.size());
  if (!unit)
    throw Error(ErrorCode::kModelFormat, "the model's hidden states are NaN, infinite or all zero", {},
                "the model file is probably damaged: download or convert it again");
  JsonWriter json(JsonLayout::kCompact);
  json.open('{').field("embedding", std::span<const float>(*unit));
  return json.close().take();
}

}  // namespace

int embed_command(RunRequest& request, session::Stages& stages) {
  request.session.tokenizer = !request.tokens;
  request.session.model.hidden = true;
  request.session.embeds = true;
  session::Session session(request.session, stages);
  if (request.dump_embedding) session::check_output_path(*request.dump_embedding, session.file());
  const auto pooling = session::read_pooling(session.model(), request.pooling);
  const auto ids = ids_of(request, session);
  session::check_known(ids, session.executor().vocab());
  session::Sequences sequences(session.executor(), session.context(), 1);
  note_device(session);
  const auto vector = session::embed(sequences, ids, pooling);
  if (request.dump_embedding) {
    AtomicFile file(*request.dump_embedding);
    file.write(std::as_bytes(std::span<const float>(vector)));
    file.commit();
  } else {
    Output output;
    output.write(unit_json(vector));
  }
  report_run(request, session, stages);
  return 0;
}

}  // namespace forge::tools

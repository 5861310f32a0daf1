#pragma once
// The model that is served: its engine, its words, and its chat template.

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/engine.h"
#include "serve/protocol/request_json.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::serve {

class ServedModel {
 public:
  struct Parts {
    std::string name;
    const text::Tokenizer* tokenizer = nullptr;  ///< outlives the model
    std::string_view chat_template;              ///< its source; empty: none
    std::unique_ptr<runtime::Executor> executor;
    session::SamplingDefaults sampling;  ///< what holds where a request says nothing
    std::size_t context = 0;
    std::optional<engine::OutputKind> pooling;  ///< which row is a text's embedding; nothing: none that is known here
    engine::EngineOptions engine;
  };
  /// Errors: those of Engine; kTemplate for a template that cannot be read.
  explicit ServedModel(Parts parts);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::int64_t created() const { return created_; }  ///< seconds since 1970
  [[nodiscard]] std::size_t context() const { return context_; }
  [[nodiscard]] const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] engine::Engine& engine() { return engine_; }
  [[nodiscard]] std::optional<engine::OutputKind> pooling() const { return pooling_; }
  [[nodiscard]] const session::SamplingDefaults& sampling() const { return sampling_; }

  // From any thread.
  /// Text that spells control tokens becomes them; BOS comes first where the model wants one, once. Ids are taken as
  /// they are. Errors: no tokens.
  [[nodiscard]] Read<std::vector<std::int32_t>> encode(const Prompt& prompt) const;
  /// A text for its embedding: nothing in it is special, and BOS and EOS stand where the model wants them.
  [[nodiscard]] Read<std::vector<std::int32_t>> encode_input(const Prompt& input) const;
  /// A conversation (ChatBody::conversation) in the model's template.
  [[nodiscard]] Read<std::string> render(std::string_view conversation) const;
  /// A new request's seed.
  [[nodiscard]] static std::uint64_t new_seed();

 private:
  std::string name_;
  std::int64_t created_;
  std::size_t context_;
  std::optional<engine::OutputKind> pooling_;
  session::SamplingDefaults sampling_;
  const text::Tokenizer* tokenizer_;
  std::optional<text::ChatTemplate> template_;
  engine::Engine engine_;
};

}  // namespace forge::serve

#pragma once
// The model that the server serves: engine, tokenizer, chat template and sampling defaults.

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/engine.h"
#include "serve/answer_reader.h"
#include "serve/protocol/request_json.h"
#include "serve/structured.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::serve {

class ServedModel {
 public:
  struct Parts {
    std::string name;
    const text::Tokenizer* tokenizer = nullptr;  ///< must outlive the model
    std::string_view chat_template;              ///< Jinja source; empty: none
    std::unique_ptr<runtime::Executor> executor;
    session::SamplingDefaults sampling;         ///< defaults for what a request does not set
    std::size_t context = 0;                    ///< tokens per sequence
    std::optional<engine::OutputKind> pooling;  ///< pooling of embeddings; nullopt: the model's is not supported
    bool ranks = false;                         ///< a reranker: a pooled row is the score of a pair of texts
    engine::EngineOptions engine;
  };
  /// Errors: those of Engine; kTemplate for a chat template that does not parse.
  explicit ServedModel(Parts parts);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::int64_t created() const { return created_; }  ///< seconds since 1970
  [[nodiscard]] std::size_t context() const { return context_; }
  [[nodiscard]] const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] engine::Engine& engine() { return engine_; }
  [[nodiscard]] std::optional<engine::OutputKind> pooling() const { return pooling_; }
  [[nodiscard]] bool ranks() const { return ranks_; }
  /// Why no embedding of so many dimensions can be given; 0: all of them.
  [[nodiscard]] std::optional<std::string> refuses_dimensions(std::size_t dimensions) const;
  [[nodiscard]] const session::SamplingDefaults& sampling() const { return sampling_; }

  // The functions below may be called from any thread.
  /// Token ids of a prompt. In text, the spelling of a control token becomes that token, and the ids begin with one BOS
  /// if the model wants one. Ids are returned as they are. Errors: 400 for an empty prompt.
  [[nodiscard]] Read<std::vector<std::int32_t>> encode(const Prompt& prompt) const;
  /// Token ids of a text to embed: control tokens in the text are plain text; BOS and EOS are added where the model
  /// wants them. Errors: 400 for an empty input.
  [[nodiscard]] Read<std::vector<std::int32_t>> encode_input(const Prompt& input) const;
  /// Token ids of a query and a document for a reranker (Tokenizer::encode_pair). Errors: 400 for an empty pair.
  [[nodiscard]] Read<std::vector<std::int32_t>> encode_pair(const std::string& query,
                                                            const std::string& document) const;
  /// Renders a conversation with the model's chat template. Errors: 400 without a
  /// template, or when it fails.
  [[nodiscard]] Read<std::string> render(const ChatBody& body) const;
  /// How the answer to a chat is to be read. `prompt`: as rendered. `calls_bound`: its calls are constrained.
  [[nodiscard]] std::shared_ptr<const AnswerRules> answer_rules(const ChatBody& body, std::string prompt,
                                                                bool calls_bound) const;
  /// What constrains a text, or the content of a chat's answer (StructuredAnswers::start).
  [[nodiscard]] Read<MakeConstraint> constraint(const StructuredOutput& output,
                                                std::optional<std::string_view> prompt) {
    return structured_.start(output, answers_, prompt);
  }
  /// What constrains the calls of an answer (StructuredAnswers::start_calls).
  [[nodiscard]] Read<MakeConstraint> call_constraint(const ChatBody& body, std::string_view prompt) {
    return structured_.start_calls(body, answers_, shown_, prompt);
  }
  /// A constraint that also limits the tokens of reasoning; `inner` may be empty. The model must outlive it.
  [[nodiscard]] MakeConstraint with_thinking_budget(MakeConstraint inner, const AnswerRules& rules,
                                                    std::size_t tokens) const;
  /// A random seed for a request that gives none.
  [[nodiscard]] static std::uint64_t new_seed();

 private:
  std::string name_;
  std::int64_t created_;
  std::size_t context_;
  std::optional<engine::OutputKind> pooling_;
  bool ranks_;
  session::SamplingDefaults sampling_;
  const text::Tokenizer* tokenizer_;
  std::optional<text::ChatTemplate> template_;
  text::AnswerFormat answers_, plain_answers_;     ///< with and without tool calls
  std::vector<std::int32_t> shown_, plain_shown_;  ///< the control tokens in their texts, sorted
  engine::Engine engine_;
  StructuredAnswers structured_;
};

}  // namespace forge::serve

#pragma once
// What OpenAI's two forms of replies have in common: everything around the choices.

#include <algorithm>
#include <string>
#include <string_view>

#include "serve/protocol/dialect.h"
#include "support/json_text.h"

namespace forge::serve {

/// A finish reason as JSON; "null" while the choice is not finished.
[[nodiscard]] std::string finish_json(engine::FinishReason finish);
/// A log-probability as JSON. -infinity, which JSON cannot express, becomes the value that OpenAI uses.
[[nodiscard]] std::string logprob_json(float logprob);
JsonWriter& add_usage(JsonWriter& json, const UsageTotals& usage);

class OpenAiDialect : public Dialect {
 public:
  OpenAiDialect(ReplyHead head, std::string_view prefix, std::string_view whole, std::string_view chunk);

  std::string whole(std::span<const Choice> choices, const UsageTotals& usage) override;
  std::string last(const UsageTotals& usage) override;

 protected:
  [[nodiscard]] virtual std::string choice_json(std::size_t index, const Choice& choice) = 0;

  [[nodiscard]] JsonWriter begin(std::string_view object) const;
  [[nodiscard]] std::string chunk_of(std::string_view choice) const;
  [[nodiscard]] std::string token_bytes(std::int32_t token) const;

  ReplyHead head_;

 private:
  std::string whole_, chunk_;
};

}  // namespace forge::serve

#include "serve/protocol/other_members.h"

#include <array>
#include <string_view>

#include "serve/protocol/json_fields.h"

namespace forge::serve {
namespace {

/// A feature that the server lacks, and the values that do not ask for it, as JSON (empty: none).
struct Lacking {
  std::string_view name, neutral, other_neutral, why;
};

constexpr std::string_view kNoSampler = "this way of sampling is not supported";
constexpr std::string_view kNoWhiteSpace = "white space in JSON is the schema's to allow";
constexpr std::string_view kPlainText = "text is returned without control tokens and stop strings";

constexpr std::array kLacking{
    Lacking{"guided_whitespace_pattern", "", "", kNoWhiteSpace},
    Lacking{"min_tokens", "0", "", "the model decides when it ends"},
    Lacking{"skip_special_tokens", "true", "", kPlainText},
    Lacking{"include_stop_str_in_output", "false", "", kPlainText},
    Lacking{"use_beam_search", "false", "", kNoSampler},
    Lacking{"length_penalty", "1", "", kNoSampler},
    Lacking{"bad_words", "[]", "", "use logit_bias"},
    Lacking{"allowed_token_ids", "[]", "", "use a grammar or logit_bias"},
    Lacking{"prompt_logprobs", "0", "false", "prompts have no log-probabilities"},
    Lacking{"truncate_prompt_tokens", "", "", "prompts are not shortened"},
    Lacking{"return_tokens_as_token_ids", "false", "", "use /generate, which returns token ids"},
    Lacking{"mirostat", "0", "", kNoSampler},
    Lacking{"dynatemp_range", "0", "", kNoSampler},
    Lacking{"xtc_probability", "0", "", kNoSampler},
    Lacking{"dry_multiplier", "0", "", kNoSampler},
    Lacking{"top_n_sigma", "-1", "0", kNoSampler}};

}  // namespace

void read_other_members(Fields& fields) {
  // Choices among implementations, which allow the same texts; caching, which is always on; parameters of samplers that
  // kLacking has.
  fields.ignore({"guided_decoding_backend", "spaces_between_special_tokens", "cache_prompt", "cache_salt", "id_slot",
                 "mirostat_tau", "mirostat_eta", "dynatemp_exponent", "xtc_threshold", "dry_base", "dry_allowed_length",
                 "dry_penalty_last_n", "dry_sequence_breakers", "timings_per_token"});
  for (const auto& lacking : kLacking) {
    const auto* value = fields.take(lacking.name);
    if (value == nullptr) continue;
    const auto is = [&](std::string_view neutral) { return !neutral.empty() && *value == Json::parse(neutral); };
    if (!is(lacking.neutral) && !is(lacking.other_neutral)) fields.refuse(lacking.name, lacking.why);
  }
}

}  // namespace forge::serve

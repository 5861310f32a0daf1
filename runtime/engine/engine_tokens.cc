// The engine's side of generated tokens: choosing them, constraints, and how samples end.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/engine/engine_core.h"
#include "runtime/engine/logprobs.h"
#include "runtime/engine/prepared.h"
#include "support/error.h"

namespace forge::engine {
namespace {

/// Forced tokens that are appended at once; a longer text is forced in several steps.
constexpr std::size_t kForcedMax = 256;

constexpr const char* kNoTokenLeft =
    "error[prompt]: no token can be chosen: all are forbidden, or all logits are NaN or -infinity";
constexpr const char* kLateMask = "error[memory]: the constraint is too complex: the mask of one token took too long";
constexpr const char* kEmptyMask = "error[internal]: the constraint allows no token";
constexpr const char* kStaleMask = "error[internal]: the constraint refuses a token that its mask allows";

bool is_empty(std::span<const std::uint32_t> mask) {
  return !mask.empty() && std::ranges::all_of(mask, [](std::uint32_t word) { return word == 0; });
}

}  // namespace

/// Bookkeeping of one generated token; the first one also sets the time to first token and the prefix cache statistics.
void EngineCore::count_token(SequenceKey key, Prepared& open) {
  open.attempts = 0;
  ++metrics_.generated_tokens;
  if (open.usage.generated_tokens++ > 0) return;
  open.usage.first_token = clock_();
  open.usage.cached_tokens = scheduler_.reused_tokens(key);
  metrics_.to_first_token += open.usage.first_token - open.usage.submitted;
  metrics_.cached_tokens += open.usage.cached_tokens;
}

/// Lists the constraints of the samples that get a token from this step: all of a request where it forks. Of a loop's
/// later steps too, from which ended sequences are left out.
void EngineCore::find_masks(const StepPlan& plan) {
  mask_rows_.clear();
  mask_keys_.clear();
  row_masks_.clear();
  for (const auto& part : plan.parts) {
    if (part.rows == 0 || plan.hidden) continue;
    row_masks_.emplace_back();
    const auto found = requests_.find(part.key.request);
    if (found == requests_.end()) continue;
    const auto& samples = found->second->samples;
    for (std::size_t s = part.key.sample; s < part.key.sample + part.samples; ++s) {
      if (!samples[s].constrained || samples[s].ended) continue;
      mask_rows_.push_back(samples[s].constrained);
      mask_keys_.push_back({.request = part.key.request, .sample = static_cast<std::uint32_t>(s)});
      row_masks_.back() = samples[s].constrained;
    }
  }
}

/// Starts to compute the masks on their own threads, beside a step that keeps this one busy.
void EngineCore::begin_masks() {
  masks_begun_ = true;
  masks_begun_at_ = clock_();
  masks_.begin(mask_rows_);
}

/// Waits for the masks. Not under the watchdog: the device is not to blame for a mask that takes long.
void EngineCore::end_masks() {
  if (!std::exchange(masks_begun_, false)) return;
  constexpr auto kPatience = std::chrono::milliseconds(5);
  while (!masks_.wait_for(kPatience)) wait_for_late_masks();
  for (auto& row : row_masks_)
    if (row != nullptr && masks_.is_late(*row)) row = nullptr;  // of a request that has ended; its token is dropped
}

/// Called again and again while masks are missing: requests end as they would between steps, and those whose masks are
/// too late.
void EngineCore::wait_for_late_masks() {
  end_expired();
  end_abandoned();
  const bool too_late = clock_() - masks_begun_at_ >= options_.mask_time;
  for (std::size_t i = 0; i < mask_rows_.size(); ++i) {
    const auto& key = mask_keys_[i];
    if (too_late && masks_.is_running(*mask_rows_[i])) end(key.request, FinishReason::kError, kLateMask);
    const auto found = requests_.find(key.request);
    if (found == requests_.end() || found->second->samples[key.sample].ended) masks_.give_up(*mask_rows_[i]);
  }
  if (too_late) masks_begun_at_ = clock_();  // for rows that waited for a thread
}

/// The mask of a row that the device samples, which is asked for while the step's forward pass runs. The watchdog does
/// not look while it is waited for.
std::span<const std::uint32_t> EngineCore::mask(std::size_t row) {
  if (masks_begun_) {
    stuck_before_masks_ = watch_ != nullptr && watch_->end();
    end_masks();
    if (watch_ != nullptr) watch_->begin(StepWatch::Part::kDevice);
  }
  return row_masks_[row] != nullptr ? row_masks_[row]->mask : std::span<const std::uint32_t>();
}

/// Null if no row has a mask.
runtime::RowMasks* EngineCore::masks_of_step() {
  return std::ranges::any_of(row_masks_, [](const auto& row) { return row != nullptr; }) ? this : nullptr;
}

/// Returns the token that the device sampled, or samples from the row's logits. kNoToken if no token is allowed or all
/// logits are NaN or -infinity. Counts the device's draw, so that the host's sampler can continue the same random
/// sequence.
std::int32_t EngineCore::choose(runtime::Sampler& sampler, const StepRows& rows, std::size_t row,
                                std::span<const std::uint32_t> mask) {
  if (row < rows.tokens.size() && rows.tokens[row] != runtime::Sampler::kNoToken) {
    if (rows.tokens[row] == runtime::kNoFiniteLogits) return runtime::Sampler::kNoToken;
    if (sampler.params().temperature > 0) sampler.set_draws(sampler.draws() + 1);
    return rows.tokens[row];
  }
  return sampler.sample(logits_of(rows, row), scratch_, mask);
}

/// Handles one row of logits, or the token that the device sampled from it.
void EngineCore::handle_token(const StepOutput& given, const StepRows& rows) {
  const auto key = given.key;
  auto& open = *requests_.at(key.request);
  auto& sampler = open.samples[key.sample].sampler;
  const auto constrained = open.samples[key.sample].constrained;  // outlives the request
  StreamEvent event{.sample = key.sample};
  const auto mask = constrained ? constrained->mask : std::span<const std::uint32_t>();
  if (constrained && constrained->error)
    event.error = constrained->error->line();
  else if (is_empty(mask))
    event.error = kEmptyMask;
  else if (event.token = choose(sampler, rows, given.row, mask); event.token == runtime::Sampler::kNoToken)
    event.error = kNoTokenLeft;
  if (!event.error.empty()) {
    event.finish = FinishReason::kError;
    return end_sample(open, std::move(event));
  }
  if (open.request.logprobs) {
    const auto logits = logits_of(rows, given.row);
    const double log_sum = log_sum_exp(logits);
    event.chosen = {.token = event.token, .logprob = logprob_of(logits, log_sum, event.token)};
    event.top_logprobs = top_tokens(logits, log_sum, open.request.top_logprobs);
  }
  const bool was_forced = constrained && !constrained->forced.empty();
  if (was_forced) constrained->forced.erase(constrained->forced.begin());
  if (!take_token(key, open, std::move(event)) || !constrained) return;
  if (!was_forced) find_forced(key, open);
  // A token that is appended has no row of logits, from which log probabilities are taken; then masks force it.
  if (!constrained->forced.empty() && !open.request.logprobs) forced_.push_back(key);
}

/// Asks the constraint what must follow the token that was sampled. Where a logit bias is against one of these tokens
/// the model has a choice again: the same text may have another spelling.
void EngineCore::find_forced(SequenceKey key, Prepared& open) {
  auto& forced = open.samples[key.sample].constrained->forced;
  std::string line;
  try {
    forced = open.samples[key.sample].constrained->constraint->forced(kForcedMax);
  } catch (const Error& error) {
    line = error.line();
  } catch (const std::exception& error) {
    line = fmt::format("error[internal]: forced tokens: {}", printable(error.what()));
  }
  if (!line.empty())
    return end_sample(open, {.sample = key.sample, .finish = FinishReason::kError, .error = std::move(line)});
  for (const auto& bias : open.request.sampling.logit_bias)
    if (bias.bias < 0) forced.erase(std::ranges::find(forced, bias.token), forced.end());
}

/// Appends event.token to the sample: stop tokens, the constraint, the client's stop callback, the length limit.
/// Returns false if the sample ends with it.
bool EngineCore::take_token(SequenceKey key, Prepared& open, StreamEvent event, bool forced) {
  const auto& request = open.request;
  const auto token = event.token;
  auto& sample = open.samples[key.sample];
  sample.sampler.accept(token);
  count_token(key, open);
  if (std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end()) {
    event = {.sample = key.sample, .finish = FinishReason::kStop};
    end_sample(open, std::move(event));
    return false;
  }
  const auto failed = [&](std::string line) {
    event.finish = FinishReason::kError;
    event.error = std::move(line);
  };
  const bool last = scheduler_.push(key, token, forced);
  try {
    if (sample.constrained && !sample.constrained->constraint->accept(token))
      failed(kStaleMask);
    else if ((request.stop && request.stop(key.sample, token)) ||
             (sample.constrained && sample.constrained->constraint->ended()))
      event.finish = FinishReason::kStop;
  } catch (const Error& error) {  // of the constraint
    failed(error.line());
  } catch (const std::exception& error) {
    failed(fmt::format("error[internal]: a stop callback failed: {}", printable(error.what())));
  }
  if (event.finish == FinishReason::kNone && last) event.finish = FinishReason::kLength;
  if (event.finish != FinishReason::kNone) {
    end_sample(open, std::move(event));
    return false;
  }
  open.stream->put(std::move(event));
  return true;
}

/// Called while no step is in flight. Appends what is forced: the next step feeds it together with the token before it,
/// so a forced text costs one step and not one for each token. A device that can run ahead with what is left does that
/// instead, and masks force the tokens: of many sequences, some have forced tokens at any time, so that no loop would
/// ever begin (H200, 16 sequences that write JSON arrays and end at different times: 29 % of the tokens/s).
void EngineCore::append_forced() {
  const bool runs_ahead = loops_with(scheduler_.running()) && scheduler_.could_run_ahead(clock_());
  if (runs_ahead && !is_worth_leaving()) return forced_.clear();
  for (const auto key : forced_) {
    const auto found = requests_.find(key.request);
    if (found == requests_.end()) continue;
    auto& open = *found->second;
    auto& sample = open.samples[key.sample];
    if (sample.ended) continue;
    for (const auto token : std::exchange(sample.constrained->forced, {})) {
      if (sample.sampler.params().temperature > 0) sample.sampler.set_draws(sample.sampler.draws() + 1);
      if (!take_token(key, open, {.sample = key.sample, .token = token}, true)) break;
    }
  }
  forced_.clear();
}

/// True if a loop should end, or not begin, for what is forced: in a loop each token costs a step, but to leave one and
/// begin another costs all its sequences about as much as a few short steps (H100, 16 sequences that write JSON arrays:
/// leaving for four tokens of one of them cost 15 % of the tokens/s).
bool EngineCore::is_worth_leaving() const {
  constexpr std::size_t kForcedTokens = 4;
  std::size_t forced = 0;
  for (const auto key : forced_) {
    const auto found = requests_.find(key.request);
    if (found == requests_.end()) continue;
    const auto& sample = found->second->samples[key.sample];
    if (!sample.ended) forced += sample.constrained->forced.size();
  }
  return forced > 0 && forced >= kForcedTokens * scheduler_.running();
}

/// Ends one sample; the last one ends the request.
void EngineCore::end_sample(Prepared& open, StreamEvent event) {
  scheduler_.finish({.request = open.id, .sample = event.sample});
  ahead_.ending = true;
  open.samples[event.sample].ended = true;
  ++metrics_.finished[static_cast<std::size_t>(event.finish)];
  open.usage.finished = clock_();
  open.stream->set_usage(open.usage);
  open.stream->put(std::move(event));
  if (++open.ended == open.samples.size()) close(open);
}

}  // namespace forge::engine

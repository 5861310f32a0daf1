#include "serve/generation.h"

#include <algorithm>
#include <utility>

namespace forge::serve {

namespace {

constexpr int kRetryAfterMax = 60;

}  // namespace

int retry_after_s(const engine::EngineStatus& status) {
  const auto& metrics = status.metrics;
  std::uint64_t ended = 0;
  for (const auto count : metrics.finished) ended += count;
  if (ended == 0 || metrics.running == 0) return 1;
  const auto each = metrics.end_to_end / static_cast<std::int64_t>(ended);
  const auto wait = each * static_cast<std::int64_t>(metrics.waiting) / static_cast<std::int64_t>(metrics.running);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait).count() + 1;
  return static_cast<int>(std::clamp<std::int64_t>(seconds, 1, kRetryAfterMax));
}

Generation::SampleText::SampleText(const text::Tokenizer& tokenizer, std::shared_ptr<const text::StopStrings> stops,
                                   std::shared_ptr<const AnswerRules> rules)
    : tokenizer(&tokenizer), detokenizer(tokenizer), matcher(std::move(stops)) {
  if (rules) reader.emplace(std::move(rules));
}

std::string Generation::SampleText::push(std::int32_t token) {
  const bool marker = reader && reader->shows(token);
  const auto text = marker ? detokenizer.push_bytes(tokenizer->decode_piece(token, true)) : detokenizer.push(token);
  return reader && !reader->heeds_stops() ? matcher.flush() + text : matcher.push(text);
}

bool Generation::SampleText::is_cut(engine::FinishReason finish) const {
  if (finish != engine::FinishReason::kStop) return true;
  return (matcher.matched() || stops_at_tokens) && reader && reader->in_call();
}

std::string Generation::SampleText::flush() {
  auto text = matcher.push(detokenizer.flush());
  text += matcher.flush();
  return text;
}

Generation::Generation(Spec& spec, const text::Tokenizer& tokenizer)
    : samples_a_prompt_(spec.params.samples),
      stops_(std::make_shared<const text::StopStrings>(std::move(spec.params.stops))),
      rules_(std::move(spec.answer)),
      between_tokens_(std::move(spec.between_tokens)) {
  for (std::size_t i = 0; i < spec.prompts.size() * samples_a_prompt_; ++i) {
    samples_.push_back({.text = SampleText(tokenizer, stops_, rules_), .last = {}});
    samples_.back().text.stops_at_tokens = !spec.params.stop_tokens.empty();
  }
}

engine::Request Generation::request_of(const ServedModel& model, const Spec& spec, std::vector<std::int32_t> prompt,
                                       std::size_t first, std::size_t samples) const {
  const auto& params = spec.params;
  engine::Request request{.prompt = std::move(prompt), .sampling = params.sampling, .max_tokens = params.max_tokens};
  request.sampling.seed += first;
  request.samples = samples;
  request.priority = params.priority;
  if (params.timeout) request.timeout = *params.timeout;
  request.logprobs = params.logprobs;
  request.top_logprobs = params.top_logprobs;
  if (!rules_ || !rules_->calls_forced) request.stop_tokens = params.stop_tokens;
  const auto& ends = model.tokenizer().end_of_generation();
  if (!params.ignore_eos) request.stop_tokens.insert(request.stop_tokens.end(), ends.begin(), ends.end());
  if (!stops_->empty() || (rules_ && rules_->one_call)) {
    auto texts = std::make_shared<std::vector<SampleText>>();
    for (std::size_t i = 0; i < samples; ++i) texts->emplace_back(model.tokenizer(), stops_, rules_);
    request.stop = [texts](std::uint32_t sample, std::int32_t token) {
      auto& text = (*texts)[sample];
      const auto piece = text.push(token);
      if (text.reader) (void)text.reader->feed(piece);
      return text.matcher.matched().has_value() || (text.reader && text.reader->complete());
    };
  }
  request.constraint = spec.constraint;
  request.on_event = spec.wake;
  return request;
}

Read<std::shared_ptr<Generation>> Generation::start(ServedModel& model, Spec spec) {
  spec.params.sampling.seed = spec.params.seed.value_or(ServedModel::new_seed());
  std::shared_ptr<Generation> generation(new Generation(spec, model.tokenizer()));
  const std::size_t all = spec.params.samples, most = model.engine().sequences();
  for (std::size_t p = 0; p < spec.prompts.size(); ++p) {
    generation->prompt_tokens_ += spec.prompts[p].size();
    for (std::size_t first = 0; first < all; first += most) {
      const auto samples = std::min(all - first, most);
      auto handle = model.engine().submit(generation->request_of(model, spec, spec.prompts[p], first, samples));
      if (!handle) return std::unexpected(error_of(handle.error(), retry_after_s(model.engine().status()), spec.input));
      generation->sources_.push_back({.handle = *std::move(handle), .choice = p * all + first});
    }
  }
  return generation;
}

Piece Generation::piece_of(const Source& source, engine::StreamEvent event) {
  Piece piece{.choice = source.choice + event.sample, .text = {}, .token = event.token};
  auto& sample = samples_[piece.choice];
  if (event.token >= 0) {
    ++tokens_;
    piece.text = sample.text.push(event.token);
    const auto now = Clock::now();
    if (std::exchange(sample.begun, true) && between_tokens_) between_tokens_(now - sample.last);
    sample.last = now;
  }
  piece.chosen = event.chosen;
  piece.top_logprobs = std::move(event.top_logprobs);
  piece.finish = event.finish;
  piece.error = std::move(event.error);
  if (piece.finish != engine::FinishReason::kNone) {
    piece.text += sample.text.flush();
    ++ended_;
    last_finish_ = piece.finish;
  }
  if (auto& reader = sample.text.reader) {
    const bool reasoned = reader->in_reasoning();
    piece.answer = reader->feed(piece.text);
    if (event.token >= 0 && (reasoned || reader->in_reasoning())) ++reasoning_tokens_;
    if (piece.finish != engine::FinishReason::kNone)
      for (auto& delta : reader->finish(sample.text.is_cut(piece.finish))) piece.answer.push_back(std::move(delta));
  }
  return piece;
}

std::optional<Piece> Generation::next() {
  for (std::size_t tried = 0; tried < sources_.size(); ++tried, turn_ = (turn_ + 1) % sources_.size())
    if (auto event = sources_[turn_].handle.next(engine::Time::zero()))
      return piece_of(sources_[turn_], *std::move(event));
  return std::nullopt;
}

UsageTotals Generation::totals() const {
  UsageTotals totals{.prompt_tokens = prompt_tokens_};
  if (rules_) totals.reasoning_tokens = reasoning_tokens_;
  for (const auto& source : sources_) {
    const auto usage = source.handle.usage();
    // Later requests for the same prompt find all of it in the cache.
    if (source.choice % samples_a_prompt_ == 0) totals.cached_tokens += usage.cached_tokens;
    totals.generated_tokens += usage.generated_tokens;
  }
  return totals;
}

std::vector<engine::Usage> Generation::usages() const {
  std::vector<engine::Usage> usages;
  for (const auto& source : sources_) usages.push_back(source.handle.usage());
  return usages;
}

void Generation::cancel() {
  for (auto& source : sources_) source.handle.cancel();
}

}  // namespace forge::serve

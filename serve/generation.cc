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
  return matcher.push(marker ? detokenizer.push_bytes(tokenizer->decode_piece(token, true)) : detokenizer.push(token));
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
  for (std::size_t i = 0; i < spec.prompts.size() * samples_a_prompt_; ++i)
    samples_.push_back({.text = SampleText(tokenizer, stops_, rules_), .last = {}});
}

engine::Request Generation::request_of(const ServedModel& model, const Spec& spec,
                                       std::vector<std::int32_t> prompt) const {
  const auto& params = spec.params;
  engine::Request request{.prompt = std::move(prompt), .sampling = params.sampling, .max_tokens = params.max_tokens};
  request.samples = params.samples;
  request.priority = params.priority;
  if (params.timeout) request.timeout = *params.timeout;
  request.logprobs = params.logprobs;
  request.top_logprobs = params.top_logprobs;
  request.stop_tokens = params.stop_tokens;
  const auto& ends = model.tokenizer().end_of_generation();
  if (!params.ignore_eos) request.stop_tokens.insert(request.stop_tokens.end(), ends.begin(), ends.end());
  if (!stops_->empty() || (rules_ && rules_->one_call)) {
    auto texts = std::make_shared<std::vector<SampleText>>();
    for (std::size_t i = 0; i < params.samples; ++i) texts->emplace_back(model.tokenizer(), stops_, rules_);
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
  for (auto& prompt : spec.prompts) {
    generation->prompt_tokens_ += prompt.size();
    auto handle = model.engine().submit(generation->request_of(model, spec, std::move(prompt)));
    if (!handle) return std::unexpected(error_of(handle.error(), retry_after_s(model.engine().status()), spec.input));
    generation->handles_.push_back(*std::move(handle));
  }
  return generation;
}

Piece Generation::piece_of(std::size_t prompt, engine::StreamEvent event) {
  Piece piece{.choice = prompt * samples_a_prompt_ + event.sample, .text = {}, .token = event.token};
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
    piece.answer = reader->feed(piece.text);
    if (piece.finish != engine::FinishReason::kNone)
      for (auto& delta : reader->finish(piece.finish != engine::FinishReason::kStop))
        piece.answer.push_back(std::move(delta));
  }
  return piece;
}

std::optional<Piece> Generation::next() {
  for (std::size_t tried = 0; tried < handles_.size(); ++tried, turn_ = (turn_ + 1) % handles_.size())
    if (auto event = handles_[turn_].next(engine::Time::zero())) return piece_of(turn_, *std::move(event));
  return std::nullopt;
}

UsageTotals Generation::totals() const {
  UsageTotals totals{.prompt_tokens = prompt_tokens_};
  for (const auto& usage : usages()) {
    totals.cached_tokens += usage.cached_tokens;
    totals.generated_tokens += usage.generated_tokens;
  }
  return totals;
}

std::vector<engine::Usage> Generation::usages() const {
  std::vector<engine::Usage> usages;
  for (const auto& handle : handles_) usages.push_back(handle.usage());
  return usages;
}

void Generation::cancel() {
  for (auto& handle : handles_) handle.cancel();
}

}  // namespace forge::serve

#include "session/sequences.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/program_bounds.h"
#include "support/error.h"
#include "support/os/interrupt.h"

namespace forge::session {

Sequences::Sequences(runtime::Executor& executor, std::int64_t context, std::int64_t count)
    : executor_(executor),
      context_(context),
      table_stride_(static_cast<std::size_t>(runtime::kv_blocks_for(executor.program(), context, 1))),
      pool_({.blocks = static_cast<std::size_t>(executor.kv_blocks()),
             .block_tokens = static_cast<std::size_t>(executor.kv_block_tokens()),
             .sequences_max = static_cast<std::size_t>(count),
             .tokens_max = static_cast<std::size_t>(context),
             .windows = executor.kv_windows(),
             .states = {.slots = executor.state_slots(),
                        .snapshots = executor.state_slots() > static_cast<std::size_t>(count)}}) {
  const auto sequences = static_cast<std::size_t>(count);
  const std::size_t tokens = std::max(executor.tokens_max(), sequences);
  positions_.resize(tokens);
  sequence_.resize(tokens);
  rows_.resize(tokens);
  prompt_.resize(tokens);
  kv_length_.resize(sequences);
  state_read_.resize(sequences);
  state_write_.resize(sequences);
  invariant(!has_state() || executor.state_slots() >= sequences, "TOOL-009", "every sequence has a state slot");
  samplers_.resize(sequences);
  next_ids_.reserve(sequences);
  keep_at_.resize(sequences);
  ids_.resize(sequences);
  copies_.reserve(sequences * (1 + executor.kv_windows().size()));
  if (keeps_states())
    for (auto& ids : ids_) ids.reserve(static_cast<std::size_t>(context));
  block_table_.resize(executor.kv_pool_sizes().size() * sequences * table_stride_);
  for (std::size_t i = 0; i < sequences; ++i) {
    auto sequence = pool_.open();
    invariant(sequence.has_value(), "TOOL-001", "the KV pool has room for all its sequences");
    sequences_.push_back(*std::move(sequence));
  }
}

std::int64_t Sequences::length(std::size_t sequence) const {
  return static_cast<std::int64_t>(sequences_[sequence].tokens());
}

std::int64_t Sequences::trim(std::size_t sequence, std::int64_t length) {
  const auto left = sequences_[sequence].trim(static_cast<std::size_t>(length));
  if (keeps_states()) ids_[sequence].resize(left);
  return static_cast<std::int64_t>(left);
}

void Sequences::keep_state(std::size_t sequence) {
  if (keeps_states()) (void)sequences_[sequence].keep_state(ids_[sequence]);
}

void Sequences::keep_at(std::size_t sequence, std::int64_t length) {
  if (keeps_states()) keep_at_[sequence] = length;
}

std::int64_t Sequences::resume(std::size_t sequence, std::span<const std::int32_t> ids) {
  invariant(keeps_states(), "TOOL-010", "a sequence is resumed from a snapshot");
  {
    const auto closed = std::move(sequences_[sequence]);
  }
  auto opened = pool_.open(ids);
  invariant(opened.has_value(), "TOOL-001", "the KV pool has room for all its sequences");
  sequences_[sequence] = *std::move(opened);
  const auto known = ids.first(sequences_[sequence].tokens());
  ids_[sequence].assign(known.begin(), known.end());
  return static_cast<std::int64_t>(known.size());
}

void Sequences::forget(std::size_t sequence) {
  trim(sequence, 0);
  pool_.evict_idle();
}

/// The sequence's next tokens, whose step runs now.
void Sequences::take_ids(std::size_t sequence, std::span<const std::int32_t> ids) {
  if (keeps_states()) ids_[sequence].insert(ids_[sequence].end(), ids.begin(), ids.end());
}

void Sequences::extend(std::size_t sequence, std::size_t tokens, std::size_t row, std::size_t rows, bool ahead) {
  auto& kv = sequences_[sequence];
  kv.release_outside_window();
  bool room = false;
  if (row == 0) copies_.clear();
  if (ahead) {
    const auto from = kv.tokens();
    room = kv.append_ring(tokens);
    in_flight_max_ = std::min(in_flight_max_, kv.run_ahead(from));
  } else {
    const auto grown = kv.append(tokens);
    room = grown.ok;
    // Only after resume does a sequence share blocks.
    if (grown.copy) copies_.push_back(*grown.copy);
    copies_.insert(copies_.end(), grown.window_copies.begin(), grown.window_copies.end());
  }
  invariant(room, "TOOL-002", "a sequence outgrows its context");
  state_read_[row] = kv.state_read();
  state_write_[row] = kv.state_write();
  kv_length_[row] = static_cast<std::int32_t>(kv.tokens());
  for (std::size_t group = 0; group < executor_.kv_pool_sizes().size(); ++group) {
    const std::size_t at = (group * rows + row) * table_stride_;
    std::ranges::copy(kv.table(group), block_table_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

std::span<const std::int32_t> Sequences::tables(std::size_t rows) const {
  return std::span(block_table_).first(executor_.kv_pool_sizes().size() * rows * table_stride_);
}

void Sequences::prefill(std::size_t sequence, std::span<const std::int32_t> ids, std::size_t first_row,
                        const TakeRows& take) {
  feed(sequence, ids, {.first_row = first_row, .tokens_max = executor_.tokens_max(), .rows_max = executor_.rows_max()},
       take);
}

void Sequences::hidden_rows(std::size_t sequence, std::span<const std::int32_t> ids, const TakeRows& take) {
  if (hidden_width() == 0)
    throw Error(ErrorCode::kUsage, "the plan returns no hidden rows, which embeddings need", {},
                "compile it with forge-compile --embeddings");
  const std::size_t rows = runtime::bounds_of(executor_.program()).hidden_rows;
  feed(sequence, ids, {.tokens_max = rows, .rows_max = rows, .hidden = true}, take);
}

void Sequences::feed(std::size_t sequence, std::span<const std::int32_t> ids, const FeedLimits& limits,
                     const TakeRows& take) {
  const auto [first_row, tokens_max, rows_max, hidden] = limits;
  std::ranges::fill(prompt_, ids.size() >= executor_.long_prompt() ? 1 : 0);
  for (std::size_t begin = 0; begin < ids.size();) {
    check_interrupt();
    const std::size_t silent = first_row > begin ? first_row - begin : 0;  // tokens of this step without logits
    std::size_t tokens = std::min({ids.size() - begin, tokens_max, silent + rows_max});
    const auto keep = std::exchange(keep_at_[sequence], 0) - length(sequence);
    if (keep > 0 && keep <= static_cast<std::int64_t>(ids.size() - begin)) {
      if (static_cast<std::size_t>(keep) > tokens) keep_at_[sequence] = keep + length(sequence);
      tokens = std::min(tokens, static_cast<std::size_t>(keep));
    }
    const std::size_t row_count = tokens > silent ? tokens - silent : 0;
    const auto start = static_cast<std::int32_t>(length(sequence));
    extend(sequence, tokens, 0, 1);
    take_ids(sequence, ids.subspan(begin, tokens));
    std::iota(positions_.begin(), positions_.begin() + static_cast<std::ptrdiff_t>(tokens), start);
    std::fill_n(sequence_.begin(), tokens, 0);
    std::iota(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(row_count), static_cast<std::int32_t>(silent));
    const auto logits = executor_.forward({.ids = ids.subspan(begin, tokens),
                                           .positions = std::span(positions_).first(tokens),
                                           .sequence = std::span(sequence_).first(tokens),
                                           .rows = std::span(rows_).first(row_count),
                                           .prompt = std::span(prompt_).first(tokens),
                                           .kv_length = std::span(kv_length_).first(1),
                                           .block_table = tables(1),
                                           .table_stride = table_stride_,
                                           .copies = copies_,
                                           .state_read = slots(state_read_, 1),
                                           .state_write = slots(state_write_, 1),
                                           .hidden = hidden});
    sequences_[sequence].release_outside_window();  // blocks behind the sliding window are free for other sequences
    if (keep == static_cast<std::int64_t>(tokens)) keep_state(sequence);
    if (row_count > 0) take(logits);
    begin += tokens;
  }
}

std::span<const float> Sequences::prefill(std::size_t sequence, std::span<const std::int32_t> ids) {
  std::span<const float> last;
  prefill(sequence, ids, ids.size() - 1, [&](std::span<const float> rows) { last = rows; });
  return last;
}

/// Makes room for one token of each sequence and returns the step that feeds them; valid until the next one.
runtime::StepBatch Sequences::decode_batch(std::span<const std::int32_t> ids) {
  for (std::size_t s = 0; s < ids.size(); ++s) {
    positions_[s] = static_cast<std::int32_t>(length(s));
    sequence_[s] = rows_[s] = static_cast<std::int32_t>(s);
    extend(s, 1, s, ids.size());
  }
  return {.ids = ids,
          .positions = std::span(positions_).first(ids.size()),
          .sequence = std::span(sequence_).first(ids.size()),
          .rows = std::span(rows_).first(ids.size()),
          .kv_length = std::span(kv_length_).first(ids.size()),
          .block_table = tables(ids.size()),
          .table_stride = table_stride_,
          .copies = copies_,
          .state_read = slots(state_read_, ids.size()),
          .state_write = slots(state_write_, ids.size())};
}

std::span<const float> Sequences::decode(std::span<const std::int32_t> ids) {
  for (std::size_t s = 0; s < ids.size(); ++s) take_ids(s, ids.subspan(s, 1));
  return executor_.forward(decode_batch(ids));
}

bool Sequences::can_sample(std::size_t sequences, const runtime::SamplerParams& params) const {
  const auto* loop = executor_.decode_loop();
  return loop != nullptr && sequences <= loop->sequences_max() && loop->can_sample(params);
}

void Sequences::begin(std::span<const std::int32_t> ids, std::span<const runtime::Sampler> samplers,
                      std::int64_t steps) {
  loop_ = executor_.decode_loop();
  loop_sequences_ = ids.size();
  loop_steps_ = steps;
  taken_ = alone_ = 0;
  if (steps == 0) return;
  next_ids_.assign(ids.begin(), ids.end());
  bool ready = true;
  for (std::size_t s = 0; s < ids.size(); ++s) {
    samplers_[s] = &samplers[s];
    ready = ready && sequences_[s].can_run_ahead();
  }
  if (ready)
    start_loop();
  else
    alone_ = 1;
}

/// The device runs ahead of the host, so all blocks that the loop can reach are allocated now; end() trims.
void Sequences::start_loop() {
  const std::span<const std::int32_t> ids = next_ids_;
  const auto steps = loop_steps_ - alone_;
  in_flight_max_ = SIZE_MAX;
  for (std::size_t s = 0; s < ids.size(); ++s) {
    positions_[s] = static_cast<std::int32_t>(length(s));
    extend(s, static_cast<std::size_t>(steps), s, ids.size(), true);
  }
  loop_->start({.ids = ids,
                .positions = std::span(positions_).first(ids.size()),
                .samplers = std::span(samplers_).first(ids.size()),
                .block_table = tables(ids.size()),
                .table_stride = table_stride_,
                .steps_max = steps,
                .state_read = slots(state_read_, ids.size()),
                .state_write = slots(state_write_, ids.size()),
                .draws = static_cast<std::uint64_t>(alone_)});
  loop_runs_ = true;
}

std::span<const std::int32_t> Sequences::next() {
  invariant(loop_ != nullptr && taken_ < loop_steps_, "TOOL-004", "no more steps than begin() announced");
  for (std::size_t s = 0; s < loop_sequences_; ++s) take_ids(s, std::span(next_ids_).subspan(s, 1));
  std::span<const std::int32_t> tokens;
  if (taken_ < alone_) {
    const auto batch = decode_batch(next_ids_);
    tokens = loop_->forward_and_sample(batch, std::span(samplers_).first(loop_sequences_)).tokens;
  } else {
    if (!loop_runs_) start_loop();
    const auto most =
        std::min({loop_->in_flight_max(), in_flight_max_, static_cast<std::size_t>(loop_steps_ - taken_)});
    while (loop_->in_flight() < most) loop_->submit();
    tokens = loop_->take();
  }
  std::ranges::copy(tokens, next_ids_.begin());
  ++taken_;
  return tokens;
}

void Sequences::end() {
  if (loop_ == nullptr) return;
  if (std::exchange(loop_runs_, false)) {
    loop_->stop();
    for (std::size_t s = 0; s < loop_sequences_; ++s) {
      const auto fed = length(s) - loop_steps_ + taken_;
      invariant(trim(s, fed) == fed, "TOOL-006", "the KV cache after a decode loop still has what the next token sees");
    }
  }
  loop_ = nullptr;
}

}  // namespace forge::session

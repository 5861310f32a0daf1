// FakeExecutor: KV pool, decode loop and faults. See fake_executor.h for the model that it computes.
#include "tests/runtime/fake_executor.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "kernels/quant/dtype.h"
#include "runtime/sampler.h"
#include "support/error.h"
#include "tests/runtime/facts.h"

namespace forge::test {
namespace {

constexpr auto kHalf = static_cast<std::uint8_t>(DType::kF16);

std::shared_ptr<const plan::ProgramT> program_of(const FakeShape& shape) {
  auto program = std::make_shared<plan::ProgramT>();
  program->target = "fake";
  program->facts = some_facts(true);
  program->vocab = static_cast<std::int64_t>(shape.vocab);
  program->context = static_cast<std::int64_t>(shape.context);
  const auto n = [](std::size_t value) { return static_cast<std::int64_t>(value); };
  const auto table_blocks = n((shape.context + shape.block_tokens - 1) / shape.block_tokens);
  for (const auto tokens : {shape.sequences, shape.step_tokens}) {
    if (shape.encoder) break;
    auto variant = std::make_unique<plan::VariantT>();
    variant->bounds = plan::Bounds(n(tokens), n(shape.sequences), n(shape.sequences), table_blocks);
    program->variants.push_back(std::move(variant));
  }
  auto hidden = std::make_unique<plan::VariantT>();
  hidden->bounds = plan::Bounds(n(shape.step_tokens), n(shape.step_tokens), n(shape.sequences), table_blocks);
  hidden->hidden_width = FakeExecutor::kHiddenWidth;
  program->variants.push_back(std::move(hidden));
  program->batch_max = n(shape.sequences);
  const auto block = static_cast<std::int32_t>(shape.block_tokens);
  if (shape.kv && !shape.encoder) program->kv_groups.emplace_back(1, 1, 1, 1, block, 0, 8, kHalf, false);
  if (shape.state_slots > 0) program->recurrent_groups.emplace_back(1, 8);
  if (shape.window > 0)
    program->kv_groups.emplace_back(1, 1, 1, 1, block, static_cast<std::int32_t>(shape.window), 8, kHalf, false);
  return program;
}

std::uint64_t next_value(std::uint64_t value, std::int32_t id) {
  value = (value ^ (static_cast<std::uint64_t>(id) + 1)) * 0x9E3779B97F4A7C15;
  return value ^ (value >> 29);
}

void fill_row(std::uint64_t value, float* to) {
  for (std::size_t i = 0; i < FakeExecutor::kHiddenWidth; ++i) {
    value = next_value(value, static_cast<std::int32_t>(i));
    to[i] = static_cast<float>(value >> 44);
  }
}

}  // namespace

FakeExecutor::FakeExecutor(const FakeShape& shape)
    : Executor(program_of(shape), static_cast<std::int64_t>(shape.blocks),
               static_cast<std::int64_t>(shape.state_slots)),
      shape_(shape),
      logits_(shape.sequences * shape.vocab + shape.step_tokens * kHiddenWidth) {
  for (auto* list : {&ids_, &positions_, &sequence_, &rows_}) list->resize(shape.step_tokens);
  for (auto* list : {&kv_length_, &state_read_, &state_write_}) list->resize(shape.sequences);
  values_.resize(shape.step_tokens);
  states_.resize(state_slots());
  for (const auto& room : kv_pool_sizes()) stores_.emplace_back(room.blocks * shape.block_tokens);
  tables_.resize(stores_.size() * shape.sequences * shape.context);
}

void FakeExecutor::fill_logits(std::uint64_t value, float* to) const {
  for (std::size_t i = 0; i < shape_.vocab; ++i) {
    value = next_value(value, static_cast<std::int32_t>(i));
    to[i] = static_cast<float>(value >> 40) * 0x1p-22F;  // in [0, 4)
  }
}

std::vector<float> FakeExecutor::logits_of(std::span<const std::int32_t> ids) const {
  std::uint64_t value = 1;
  for (const auto id : ids) value = next_value(value, id);
  std::vector<float> logits(shape_.vocab);
  fill_logits(value, logits.data());
  return logits;
}

std::vector<float> FakeExecutor::row_of(std::span<const std::int32_t> ids) {
  std::uint64_t value = 1;
  for (const auto id : ids) value = next_value(value, id);
  std::vector<float> row(kHiddenWidth);
  fill_row(value, row.data());
  return row;
}

std::vector<float> FakeExecutor::encoder_row(std::span<const std::int32_t> ids, std::size_t position) {
  std::uint64_t value = 1;
  for (const auto id : ids) value = next_value(value, id);
  std::vector<float> row(kHiddenWidth);
  fill_row(next_value(value, static_cast<std::int32_t>(position)), row.data());
  return row;
}

std::vector<std::int32_t> FakeExecutor::alone(std::span<const std::int32_t> prompt, runtime::SamplerParams params,
                                              std::size_t count) const {
  runtime::Sampler sampler(shape_.vocab, std::move(params));
  runtime::SamplerScratch scratch(shape_.vocab);
  std::vector<std::int32_t> tokens;
  std::vector<float> logits(shape_.vocab);
  std::uint64_t value = 1;
  for (const auto id : prompt) {
    sampler.accept(id);
    value = next_value(value, id);
  }
  while (tokens.size() < count) {
    fill_logits(value, logits.data());
    tokens.push_back(sampler.sample(logits, scratch));
    sampler.accept(tokens.back());
    value = next_value(value, tokens.back());
  }
  return tokens;
}

void FakeExecutor::fail_if_told() {
  const auto fault = std::exchange(next_fault, Fault::kNone);
  if (fault == Fault::kNone) return;
  for (auto& store : stores_)
    for (auto& value : store) value ^= 0xDEAD'BEEF'0000'0000 + steps;
  for (auto& value : states_) value ^= 0xDEAD'BEEF'0000'0000 + steps;
  if (fault == Fault::kRecoverable) throw runtime::RecoverableError(ErrorCode::kDevice, "the fake device hiccuped");
  if (fault == Fault::kFatal) throw Error(ErrorCode::kDevice, "the fake device failed");
  throw std::runtime_error("something else");
}

std::span<const float> FakeExecutor::forward(const runtime::StepBatch& batch) {
  invariant(loop_rows_.empty(), "FAKE-002", "a loop is stopped before other steps run");
  ++steps;
  if (in_step) in_step();
  fail_if_told();
  return run(batch);
}

/// Samples one token. Reports missing finite logits by the code that GPU executors return.
std::int32_t FakeExecutor::choose(runtime::Sampler& sampler, std::span<const float> logits,
                                  runtime::SamplerScratch& scratch, std::span<const std::uint32_t> mask) {
  const auto token = sampler.sample(logits, scratch, mask);
  return token == runtime::Sampler::kNoToken ? runtime::kNoFiniteLogits : token;
}

bool FakeExecutor::can_sample(const runtime::SamplerParams& params) const {
  return params.repeat_penalty == 1 && params.logit_bias.empty();
}

runtime::SampledTokens FakeExecutor::forward_and_sample(const runtime::StepBatch& batch,
                                                        std::span<const runtime::Sampler* const> samplers,
                                                        runtime::RowMasks* masks) {
  invariant(samplers.size() == batch.rows.size(), "FAKE-003", "each row has a sampler, or none");
  std::vector<std::optional<runtime::Sampler>> copies;  // copies: in_step may end the requests that own the samplers
  for (const auto* sampler : samplers) {
    copies.emplace_back();
    if (sampler != nullptr) copies.back() = *sampler;
  }
  const auto logits = forward(batch);
  runtime::SamplerScratch scratch(shape_.vocab);
  taken_.assign(samplers.size(), runtime::Sampler::kNoToken);
  for (std::size_t r = 0; r < copies.size(); ++r) {
    if (!copies[r]) continue;
    const auto mask = masks != nullptr && masks->is_masked(r) ? masks->mask(r) : std::span<const std::uint32_t>();
    taken_[r] = choose(*copies[r], logits.subspan(r * shape_.vocab, shape_.vocab), scratch, mask);
    std::fill_n(logits_.begin() + static_cast<std::ptrdiff_t>(r * shape_.vocab), shape_.vocab,
                -1.0F);  // overwritten, as the engine must not read logits of rows sampled on the device
  }
  return {.tokens = taken_, .logits = logits};
}

void FakeExecutor::start(const runtime::DecodeStart& start) {
  invariant(loop_rows_.empty() && chosen_.empty() && !start.ids.empty() && start.samplers.size() == start.ids.size(),
            "FAKE-002", "a loop is stopped before another one starts");
  ++loops;
  for (std::size_t s = 0; s < start.ids.size(); ++s)
    loop_rows_.push_back({.id = start.ids[s], .position = start.positions[s], .sampler = *start.samplers[s]});
  for (auto& row : loop_rows_) row.sampler.set_draws(row.sampler.draws() + start.draws);
  loop_read_.assign(start.state_read.begin(), start.state_read.end());
  loop_write_.assign(start.state_write.begin(), start.state_write.end());
  loop_tables_.assign(start.block_table.begin(), start.block_table.end());
  loop_stride_ = start.table_stride;
  loop_steps_ = start.steps_max;
  loop_masked_.clear();
  for (std::size_t s = 0; s < start.ids.size() && start.masks != nullptr; ++s)
    loop_masked_.push_back(start.masks->is_masked(s) ? 1 : 0);
  unsampled_ = false;
  copy_blocks(start.copies);
}

void FakeExecutor::submit() {
  invariant(!loop_rows_.empty() && loop_steps_-- > 0 && in_flight() < in_flight_max() && !unsampled_, "FAKE-004",
            "a step is submitted while a loop runs, has room, and has steps left");
  std::vector<std::int32_t> ids, positions, numbers, lengths;
  for (const auto& row : loop_rows_) {
    numbers.push_back(static_cast<std::int32_t>(ids.size()));
    ids.push_back(row.id);
    positions.push_back(row.position);
    lengths.push_back(row.position + 1);
  }
  const auto logits = run({.ids = ids,
                           .positions = positions,
                           .sequence = numbers,
                           .rows = numbers,
                           .kv_length = lengths,
                           .block_table = loop_tables_,
                           .table_stride = loop_stride_,
                           .state_read = loop_read_,
                           .state_write = loop_write_});
  std::swap(loop_read_, loop_write_);
  loop_logits_.assign(logits.begin(), logits.end());
  unsampled_ = !loop_masked_.empty();
  if (!unsampled_) sample_loop(nullptr);
}

void FakeExecutor::sample(runtime::RowMasks& masks) {
  invariant(unsampled_ && chosen_.empty(), "FAKE-007", "a step is sampled after it was submitted, and only once");
  unsampled_ = false;
  sample_loop(&masks);
}

void FakeExecutor::sample_loop(runtime::RowMasks* masks) {
  runtime::SamplerScratch scratch(shape_.vocab);
  std::vector<std::int32_t> ids(loop_rows_.size());
  for (std::size_t s = 0; s < loop_rows_.size(); ++s) {
    auto& row = loop_rows_[s];
    const bool masked = masks != nullptr && loop_masked_[s] != 0 && masks->is_masked(s);
    ids[s] = choose(row.sampler, std::span(loop_logits_).subspan(s * shape_.vocab, shape_.vocab), scratch,
                    masked ? masks->mask(s) : std::span<const std::uint32_t>());
    row.id = std::max(ids[s], 0);
    ++row.position;
  }
  chosen_.push_back(std::move(ids));
}

std::span<const std::int32_t> FakeExecutor::take() {
  invariant(!chosen_.empty(), "FAKE-005", "a step was submitted before its tokens are taken");
  ++steps;
  if (in_step) in_step();
  fail_if_told();
  taken_ = std::move(chosen_.front());
  chosen_.pop_front();
  return taken_;
}

void FakeExecutor::stop() {
  loop_rows_.clear();
  unsampled_ = false;
  chosen_.clear();
}

void FakeExecutor::copy_blocks(std::span<const runtime::BlockCopy> copies) {
  const std::size_t size = shape_.block_tokens;
  for (const auto& copy : copies)
    for (std::size_t g = 0; g < stores_.size(); ++g)
      if (runtime::copy_applies_to(copy, kv_pool_sizes(), g))
        std::copy_n(stores_[g].begin() + copy.from * static_cast<std::ptrdiff_t>(size), size,
                    stores_[g].begin() + copy.to * static_cast<std::ptrdiff_t>(size));
}

std::span<const float> FakeExecutor::run(const runtime::StepBatch& batch) {
  runtime::copy_checked_inputs(batch,
                               {.vocab = shape_.vocab,
                                .rooms = kv_pool_sizes(),
                                .block_tokens = shape_.block_tokens,
                                .table_blocks = shape_.context,
                                .state_slots = states_.size()},
                               {.ids = ids_.data(),
                                .positions = positions_.data(),
                                .sequence = sequence_.data(),
                                .rows = rows_.data(),
                                .kv_length = kv_length_.data(),
                                .block_table = tables_.data(),
                                .state_read = state_read_.data(),
                                .state_write = state_write_.data(),
                                .table_stride = shape_.context,
                                .group_stride = shape_.sequences * shape_.context});
  invariant(batch.ids.size() <= shape_.step_tokens && batch.kv_length.size() <= shape_.sequences, "FAKE-001",
            "a step keeps to its bounds");
  const std::size_t size = shape_.block_tokens;
  copy_blocks(batch.copies);
  const auto value_at = [&](std::size_t group, std::int32_t sequence, std::int32_t position) -> std::uint64_t& {
    const auto p = static_cast<std::size_t>(position);
    const auto row = group * shape_.sequences + static_cast<std::size_t>(sequence);
    return stores_[group][static_cast<std::size_t>(tables_[row * shape_.context + p / size]) * size + p % size];
  };
  for (std::size_t t = 0; t < batch.ids.size(); ++t) {
    const auto position = positions_[t];
    const auto s = static_cast<std::size_t>(sequence_[t]);
    const bool goes_on = t > 0 && sequence_[t - 1] == sequence_[t];
    const auto state = [&] {
      if (goes_on) return values_[t - 1];
      return state_read_[s] < 0 ? std::uint64_t{1} : states_[static_cast<std::size_t>(state_read_[s])];
    };
    auto before = position == 0 || stores_.empty() ? 1 : value_at(0, sequence_[t], position - 1);
    if (shape_.encoder) {
      invariant(goes_on || position == 0, "FAKE-006", "all tokens of an encoder's sequence are in one step");
      before = goes_on ? values_[t - 1] : 1;
    } else if (stores_.empty()) {
      before = state();
    } else if (!states_.empty() && state() != before) {
      before = ~before;  // state and keys are not of the same tokens
    }
    values_[t] = next_value(before, ids_[t]);
    for (std::size_t g = 0; g < stores_.size(); ++g) value_at(g, sequence_[t], position) = values_[t];
    ++fed;
  }
  for (std::size_t t = 0; t < batch.ids.size() && !states_.empty();
       ++t)  // the sequence's last token is the last to write
    states_[static_cast<std::size_t>(state_write_[static_cast<std::size_t>(sequence_[t])])] = values_[t];
  for (std::size_t r = 0; r < batch.rows.size(); ++r) {
    const auto t = static_cast<std::size_t>(rows_[r]);
    auto value = values_[t];
    if (shape_.encoder) {
      const auto last = std::ranges::upper_bound(batch.sequence, sequence_[t]) - batch.sequence.begin() - 1;
      invariant(positions_[static_cast<std::size_t>(last)] + 1 == kv_length_[static_cast<std::size_t>(sequence_[t])],
                "FAKE-006", "all tokens of an encoder's sequence are in one step");
      value = next_value(values_[static_cast<std::size_t>(last)], positions_[t]);
    }
    const auto first = std::max(0, positions_[t] - static_cast<std::int32_t>(shape_.window) + 1);
    for (auto p = first; shape_.window > 0 && p <= positions_[t]; ++p)
      if (value_at(1, sequence_[t], p) != value_at(0, sequence_[t], p)) value = ~value;
    if (batch.hidden)
      fill_row(value, logits_.data() + r * kHiddenWidth);
    else if (positions_[t] >= no_numbers_from)
      std::fill_n(logits_.begin() + static_cast<std::ptrdiff_t>(r * shape_.vocab), shape_.vocab, NAN);
    else
      fill_logits(value, logits_.data() + r * shape_.vocab);
    if (const auto told = script && !batch.hidden ? script(positions_[t]) : -1; told >= 0)
      logits_[r * shape_.vocab + static_cast<std::size_t>(told)] = 1000;
  }
  return std::span(logits_).first(batch.rows.size() * (batch.hidden ? kHiddenWidth : shape_.vocab));
}

}  // namespace forge::test

// GpuModel: the program, its three kernels as host functions on the null driver, and the model's bytes. The "model"
// hashes all tokens up to a position through the KV pool; logits are a function of the hash and the weights.
#include "tests/runtime/gpu_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string_view>

#include "kernels/gpu/step_io.h"
#include "kernels/quant/dtype.h"
#include "runtime/plan/gpu_io.h"
#include "runtime/plan/step.h"
#include "support/error.h"
#include "tests/runtime/facts.h"

namespace forge::test {
namespace {

constexpr auto kF16 = static_cast<std::uint8_t>(DType::kF16);

using driver::NullLaunch;
using plan::GpuInput;
using plan::Operand;
using plan::operand_at;
using plan::Space;

constexpr std::int64_t kTableBlocks = kContext / kBlockTokens, kHeadDim = 4, kLayers = 2, kLayer = 1;
constexpr std::int64_t kLargeRowBytes = 4096;
constexpr std::byte kScramble{0x5a};  // the repack kernels XOR each byte with this value
constexpr std::uint32_t kFactor = 7;

// Layout of the model's file, offsets in bytes: two halves of the embedding table (8 rows each), the bias, the large
// weight.
constexpr std::uint64_t kTableA = 100, kTableB = 200, kBias = 300, kLarge = 512;

enum Input : std::uint16_t { kIds, kPositions, kSequence, kRows, kKvLength, kBlockTable };

Operand input(std::uint16_t index) {
  return operand_at(Space::Input, index, 0);
}
Operand input(GpuInput index) {
  return input(static_cast<std::uint16_t>(index));
}

/// Arguments of the kernels, in the layout of the plan's operands and constants.
struct StoreArgs {
  const std::int32_t *ids, *positions, *sequence, *counts, *table;
  const std::uint32_t* weights;
  std::uint16_t *k, *v;
  const std::byte* large;
  std::int64_t table_stride, tokens;
};
struct LogitsArgs {
  const std::int32_t *rows, *positions, *sequence, *counts, *table;
  const std::uint16_t *k, *v;
  const std::uint32_t *bias, *factor;
  float* out;
  std::int64_t table_stride;
};
struct SampleArgs {
  const float* logits;
  std::int32_t *ids, *positions, *kv_length, *counts;
  gpu::SamplingRow* sampling;
  std::uint32_t* counter;
  std::int32_t* sampled;
  const std::uint32_t* masks;
  std::int64_t rows;
};
struct RepackArgs {
  std::byte* to;
  const std::byte* staged;
  std::int64_t first, count, row_first, unit, stride;
};

template <class Args>
Args args_of(const NullLaunch& launch) {
  return launch.arg<Args>(0);
}

std::int64_t slot_of(const std::int32_t* table, std::int64_t stride, std::int64_t sequence, std::int64_t position) {
  return table[sequence * stride + position / kBlockTokens] * kBlockTokens + position % kBlockTokens;
}

void store(const StoreArgs& a) {
  for (std::int64_t t = 0; t < a.counts[gpu::kTokenCount]; ++t) {
    const auto slot = slot_of(a.table, a.table_stride, a.sequence[t], a.positions[t]);
    a.k[slot * kHeadDim] = static_cast<std::uint16_t>(a.weights[a.ids[t]]);
    a.v[slot * kHeadDim] = static_cast<std::uint16_t>(3 * a.weights[a.ids[t]]);
  }
}

std::uint32_t mix(std::uint32_t hash, std::uint16_t k, std::uint16_t v) {
  return hash * 31 + k + v;
}
float logit_of(std::uint32_t hash, std::uint32_t factor, std::uint32_t bias) {
  return static_cast<float>((hash * factor + bias) % 97);
}

void compute_logits(const LogitsArgs& a) {
  for (std::int64_t r = 0; r < a.counts[gpu::kRowCount]; ++r) {
    const auto t = a.rows[r];
    std::uint32_t hash = 0;
    for (std::int64_t p = 0; p <= a.positions[t]; ++p) {
      const auto slot = slot_of(a.table, a.table_stride, a.sequence[t], p);
      hash = mix(hash, a.k[slot * kHeadDim], a.v[slot * kHeadDim]);
    }
    for (std::int64_t v = 0; v < kVocab; ++v) a.out[r * kVocab + v] = logit_of(hash, *a.factor, a.bias[v]);
  }
}

void sample(const SampleArgs& a) {
  for (std::int64_t r = 0; r < a.counts[gpu::kRowCount]; ++r) {
    const float* row = a.logits + r * kVocab;
    auto& sampling = a.sampling[r];
    const auto allowed = [&](std::int64_t id) {
      return sampling.masked == 0 || (a.masks[r * ((kVocab + 31) / 32) + id / 32] >> id % 32 & 1U) != 0;
    };
    std::int32_t token = gpu::kNoFiniteLogits;
    for (std::int32_t id = 0; id < static_cast<std::int32_t>(kVocab); ++id)
      if (allowed(id) && (token < 0 || row[id] > row[token])) token = id;
    if (sampling.temperature > 0)
      token = (token + static_cast<std::int32_t>(sampling.seed_low + sampling.seed_high + sampling.draws++) +
               sampling.top_k + static_cast<std::int32_t>(4 * (sampling.top_p + sampling.min_p))) %
              kVocab;
    a.ids[r] = std::max(token, 0);
    ++a.positions[r];
    ++a.kv_length[r];
    a.sampled[a.counts[gpu::kSampledCount] % gpu::kSampledRing * a.rows + r] = token;
  }
  *a.counter += *a.counter;  // doubles: only a counter that starts at 0 stays 0
  if (*a.counter == 0) ++a.counts[gpu::kSampledCount];
}

void repack(const RepackArgs& a, std::int64_t row_bytes) {
  for (std::int64_t i = 0; i < a.count; ++i) {
    const auto row = a.first + i, to = a.row_first + row / a.unit * a.stride + row % a.unit;
    for (std::int64_t b = 0; b < row_bytes; ++b) a.to[to * row_bytes + b] = a.staged[i * row_bytes + b] ^ kScramble;
  }
}

/// In the order in which add_kernels adds them: the index is the code object's number.
constexpr std::array<std::string_view, 5> kKernels{"store", "logits", "sample", "repack4", "repack4096"};
std::uint32_t code_of(std::string_view kernel) {
  return static_cast<std::uint32_t>(std::ranges::find(kKernels, kernel) - kKernels.begin());
}

std::unique_ptr<plan::StepT> make_step(const char* kernel, std::vector<Operand> operands,
                                       std::vector<std::int64_t> constants) {
  auto step = std::make_unique<plan::StepT>();
  step->label = kernel;
  step->operands = std::move(operands);
  plan::LaunchT launch;
  launch.code = code_of(kernel);
  launch.blocks = 3;
  launch.threads = 64;
  launch.lds_bytes = 128;
  launch.waits_itself = true;
  launch.constants = std::move(constants);
  step->body.Set(std::move(launch));
  step->weight_bytes = 1000;
  return step;
}

}  // namespace

GpuModel::GpuModel(const GpuModelOptions& options)
    : program(std::make_shared<plan::ProgramT>()), control(std::make_shared<driver::NullControl>(options.driver)) {
  program->target = "null";
  program->facts = some_facts(false);
  program->context = kContext;
  program->batch_max = 2;
  program->vocab = kVocab;
  program->kv_groups.emplace_back(1, 1, 8, 8, kBlockTokens, 0, 128, kF16,
                                  false);  // an unused group in front of the one that the layers use
  program->kv_groups.emplace_back(kLayers, 1, kHeadDim, kHeadDim, kBlockTokens, 0, 2 * 2 * kBlockTokens * kHeadDim,
                                  kF16, false);
  program->arena_bytes = 300;
  program->counter_bytes = 8;
  const std::uint32_t factor = kFactor;
  program->constants.resize(8);
  std::memcpy(program->constants.data() + 4, &factor, sizeof factor);
  add_weights(options.large_rows);
  add_variant("decode1", 1, 1, 1, true);
  add_variant("decode2", 2, 2, 2, true);
  add_variant("prefill8", 8, 4, 2, options.prefill_samples);
  add_kernels();
}

void GpuModel::add_weights(std::int64_t large_rows) {
  file.resize(kLarge + static_cast<std::size_t>(large_rows * kLargeRowBytes));
  std::uint64_t state = 1;
  for (auto& byte : file) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    byte = static_cast<std::byte>(state >> 56);
  }
  const auto weight = [&](const char* name, std::uint64_t offset, std::uint64_t bytes, std::int64_t rows) {
    auto out = std::make_unique<plan::WeightT>();
    out->name = name;
    out->rows = rows;
    out->cols = static_cast<std::int64_t>(bytes) / rows / 4;
    out->offset = offset;
    out->bytes = bytes;
    program->weights.push_back(std::move(out));
    program->weights_bytes = static_cast<std::int64_t>(offset + bytes);
    return program->weights.back().get();
  };
  const auto source = [&](plan::WeightT& of, std::uint64_t offset, std::int64_t rows, std::int64_t row_bytes) {
    auto out = std::make_unique<plan::WeightSourceT>();
    out->offset = offset;
    out->tensor_rows = out->rows = rows;
    out->tensor_cols = out->cols = row_bytes / 4;
    of.sources.push_back(std::move(out));
  };
  const auto load = [&](const char* label, std::uint64_t at, auto body) {
    auto step = std::make_unique<plan::StepT>();
    step->label = label;
    step->operands = {operand_at(Space::Weights, 0, at)};
    body.to = 0;
    step->body.Set(std::move(body));
    program->load_steps.push_back(std::move(step));
  };
  struct Where {
    std::uint32_t weight, source;
    std::int64_t row_bytes, row_first, unit, stride;
  };
  const auto repack = [&](const char* kernel, std::uint64_t at, std::uint32_t blocks_per_row, std::uint32_t threads,
                          const Where& where) {
    plan::RepackT body;
    body.code = code_of(kernel);
    body.blocks_per_row = blocks_per_row;
    body.threads = threads;
    body.weight = where.weight;
    body.source = where.source;
    body.row_bytes = where.row_bytes;
    body.row_first = where.row_first;
    body.unit = where.unit;
    body.stride = where.stride;
    load(kernel, at, std::move(body));
  };
  auto& bias = *weight("bias", 0, 64, 16);
  source(bias, kBias, 16, 4);
  load("copy", 0, plan::CopySourceT());
  // Rows of the two sources alternate in pairs: A0 A1 B0 B1 A2 A3 B2 B3 ...
  auto& table = *weight("table", 256, 64, 16);
  source(table, kTableA, 8, 4);
  source(table, kTableB, 8, 4);
  repack("repack4", 256, 2, 64, {.weight = 1, .source = 1, .row_bytes = 4, .row_first = 2, .unit = 2, .stride = 4});
  repack("repack4", 256, 2, 64, {.weight = 1, .source = 0, .row_bytes = 4, .row_first = 0, .unit = 2, .stride = 4});
  if (large_rows == 0) return;
  auto& large = *weight("large", 512, static_cast<std::uint64_t>(large_rows * kLargeRowBytes), large_rows);
  source(large, kLarge, large_rows, kLargeRowBytes);
  repack("repack4096", 512, 1, 256,
         {.weight = 2, .source = 0, .row_bytes = kLargeRowBytes, .row_first = 0, .unit = large_rows, .stride = 0});
}

void GpuModel::add_variant(const char* name, std::int64_t tokens, std::int64_t rows, std::int64_t sequences,
                           bool samples) {
  auto variant = std::make_unique<plan::VariantT>();
  variant->name = name;
  variant->bounds = plan::Bounds(tokens, rows, sequences, kTableBlocks);
  const auto k = operand_at(Space::Kv, 1, 2 * kLayer), v = operand_at(Space::Kv, 1, 2 * kLayer + 1);
  const auto tables = operand_at(Space::Input, kBlockTable, 1);  // block table of the same KV group
  const auto large =
      operand_at(Space::Weights, 0, static_cast<std::uint64_t>(std::min<std::int64_t>(program->weights_bytes, 512)));
  variant->steps.push_back(make_step("store",
                                     {input(kIds), input(kPositions), input(kSequence), input(GpuInput::kCounts),
                                      tables, operand_at(Space::Weights, 0, 256), k, v, large},
                                     {kTableBlocks, tokens}));
  variant->steps.push_back(
      make_step("logits",
                {input(kRows), input(kPositions), input(kSequence), input(GpuInput::kCounts), tables, k, v,
                 operand_at(Space::Weights, 0, 0), operand_at(Space::Constants, 0, 4), operand_at(Space::Output, 0, 0)},
                {kTableBlocks}));
  if (samples)
    variant->sample_steps.push_back(
        make_step("sample",
                  {operand_at(Space::Output, 0, 0), input(kIds), input(kPositions), input(kKvLength),
                   input(GpuInput::kCounts), input(GpuInput::kSampling), operand_at(Space::Counters, 0, 4),
                   input(GpuInput::kSampled), input(GpuInput::kMasks)},
                  {rows}));
  program->variants.push_back(std::move(variant));
}

void GpuModel::add_kernels() {
  const auto add = [&](const char* name, std::size_t arg_bytes, driver::NullKernel work) {
    auto object = std::make_unique<plan::CodeObjectT>();
    object->name = name;
    const driver::NullKernelImage image{.name = name, .arg_bytes = {arg_bytes}};
    const auto bytes = driver::null_image(std::span(&image, 1));
    object->bytes.assign(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                         reinterpret_cast<const std::uint8_t*>(bytes.data()) + bytes.size());
    program->code_objects.push_back(std::move(object));
    control->set_kernel(name, std::move(work));
  };
  add("store", sizeof(StoreArgs), [seen = seen](const NullLaunch& launch) {
    const auto a = args_of<StoreArgs>(launch);
    ++seen->forwards;
    seen->overlaps += launch.hints.overlap_predecessor ? 1 : 0;
    seen->k = reinterpret_cast<std::uint64_t>(a.k);
    seen->v = reinterpret_cast<std::uint64_t>(a.v);
    seen->large = reinterpret_cast<std::uint64_t>(a.large);
    std::copy_n(a.counts, 4, seen->counts);
    seen->padding_position = a.positions[a.tokens - 1];
    store(a);
  });
  add("logits", sizeof(LogitsArgs), [](const NullLaunch& launch) { compute_logits(args_of<LogitsArgs>(launch)); });
  add("sample", sizeof(SampleArgs), [seen = seen](const NullLaunch& launch) {
    ++seen->sampled;
    const auto a = args_of<SampleArgs>(launch);
    for (std::int32_t r = 0; r < a.counts[gpu::kRowCount]; ++r)
      seen->wrong_lengths += a.kv_length[r] == a.positions[r] + 1 ? 0 : 1;
    sample(a);
  });
  for (const std::int64_t row_bytes : {std::int64_t{4}, kLargeRowBytes})
    add(row_bytes == 4 ? "repack4" : "repack4096", sizeof(RepackArgs),
        [seen = seen, row_bytes](const NullLaunch& launch) {
          seen->repacks.push_back(launch);
          repack(args_of<RepackArgs>(launch), row_bytes);
        });
}

std::unique_ptr<runtime::GpuExecutor> GpuModel::open(const driver::Driver& driver,
                                                     runtime::ExecutorOptions options) const {
  const runtime::SpanWeightSource source("model", file);
  return std::make_unique<runtime::GpuExecutor>(program, source, driver.device(0), options);
}

std::uint32_t GpuModel::weight_of(std::int32_t token) const {
  const auto pair = token / 2;  // rows lie in pairs that alternate between the two sources
  const auto row = static_cast<std::size_t>(pair / 2 * 2 + token % 2);
  std::uint32_t value = 0;
  std::memcpy(&value, file.data() + (pair % 2 == 0 ? kTableA : kTableB) + row * 4, 4);
  return value ^ 0x5a5a5a5aU;
}

std::vector<float> GpuModel::logits(const std::vector<std::int32_t>& tokens) const {
  std::uint32_t hash = 0;
  for (const auto token : tokens) {
    const auto weight = weight_of(token);
    hash = mix(hash, static_cast<std::uint16_t>(weight), static_cast<std::uint16_t>(3 * weight));
  }
  std::vector<float> out;
  for (std::size_t v = 0; v < kVocab; ++v) {
    std::uint32_t bias = 0;
    std::memcpy(&bias, file.data() + kBias + v * 4, 4);
    out.push_back(logit_of(hash, kFactor, bias));
  }
  return out;
}

std::int32_t GpuModel::next(const std::vector<std::int32_t>& tokens) const {
  const auto row = logits(tokens);
  return static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin());
}

std::vector<std::byte> GpuModel::large_weight() const {
  std::vector<std::byte> out(file.begin() + kLarge, file.end());
  for (auto& byte : out) byte ^= kScramble;
  return out;
}

std::vector<std::int32_t> first_blocks() {
  std::vector<std::int32_t> blocks(kTableBlocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

std::vector<std::int32_t> of_both_groups(std::vector<std::int32_t> tables) {
  for (std::size_t i = 0, count = tables.size(); i < count; ++i) tables.push_back(tables[i]);
  return tables;
}

std::vector<float> feed(runtime::Executor& executor, const std::vector<std::int32_t>& tokens, std::size_t from,
                        std::size_t chunk) {
  const auto table = of_both_groups(first_blocks());
  std::vector<float> last;
  for (std::size_t begin = from; begin < tokens.size(); begin += chunk) {
    const auto count = std::min(chunk, tokens.size() - begin);
    std::vector<std::int32_t> positions(count), sequence(count, 0);
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(begin));
    const std::int32_t row[] = {static_cast<std::int32_t>(count - 1)};
    const std::int32_t length[] = {static_cast<std::int32_t>(begin + count)};
    const auto out = executor.forward({.ids = std::span(tokens).subspan(begin, count),
                                       .positions = positions,
                                       .sequence = sequence,
                                       .rows = row,
                                       .kv_length = length,
                                       .block_table = table,
                                       .table_stride = table.size() / 2});
    last.assign(out.begin(), out.end());
  }
  return last;
}

}  // namespace forge::test

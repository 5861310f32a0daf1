// select_keys: the keys that a sparse attention keeps (SelectKeysAttrs), and the paging that it shares with
// attention.cc.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "ir/ops/paging.h"

namespace forge::ir::ops {

void require_paging(std::string_view op, Types operands, std::size_t first, const Dim& tokens) {
  require_i32(op, operands, first, {tokens});
  require_i32(op, operands, first + 1, {tokens});
  const TensorType& table = operands[first + 2];
  if (table.dtype != DType::kI32 || table.shape.size() != 2)
    refuse_operand(op, first + 2, table, "i32 with 2 dimensions");
}

std::int64_t Paging::physical(std::size_t token, std::int64_t position) const {
  const std::int64_t row = sequence.i32[token];
  const std::int64_t blocks = table.cols();
  const std::int64_t column = position / block_tokens;
  if (row < 0 || row >= table.rows() || position < 0 || column >= blocks || table.i32[row * blocks + column] < 0)
    throw Error(ErrorCode::kInternal, fmt::format("position {} of sequence {} has no KV block", position, row),
                fmt::format("the block table is {} by {}", table.rows(), blocks));
  return table.i32[row * blocks + column] * block_tokens + position % block_tokens;
}

namespace {

constexpr std::string_view kSelectKeys = "select_keys";
constexpr std::size_t kWeightsOperand = 6;

std::vector<TensorType> infer_select_keys(const Attrs& attrs, Types operands) {
  const auto& select = std::get<SelectKeysAttrs>(attrs);
  constexpr std::int64_t kMax = 1 << 16;
  attr_between(kSelectKeys, "layer", select.layer, 0, kCountMax);
  attr_between(kSelectKeys, "heads", select.heads, 1, kMax);
  attr_between(kSelectKeys, "head_dim", select.head_dim, 1, kMax);
  attr_between(kSelectKeys, "top_k", select.top_k, 1, kSelectedMax);
  attr_between(kSelectKeys, "block", select.block, 1, kSelectedMax);
  attr_between(kSelectKeys, "local", select.local, 0, select.top_k);
  require_f32(kSelectKeys, operands, 0, 2);
  if (operands[0].cols() != select.heads * select.head_dim)
    refuse_operand(kSelectKeys, 0, operands[0],
                   fmt::format("heads * head_dim = {} * {} wide", select.heads, select.head_dim));
  require_state(kSelectKeys, operands, 1);
  const Dim tokens = operands[0].shape[0];
  require_paging(kSelectKeys, operands, 2, tokens);
  require_i32(kSelectKeys, operands, 5, {operands[4].shape[0]});
  const bool weighted = operands.size() > kWeightsOperand;
  const TensorType weights{DType::kF32, {tokens, select.heads}};
  if (weighted && operands[kWeightsOperand] != weights)
    refuse_operand(kSelectKeys, kWeightsOperand, operands[kWeightsOperand], weights.text() + ", one a head");
  return {{DType::kI32, {tokens, (weighted ? 1 : select.heads) * select.top_k}}};
}

/// Counts q, weights and the result: what is read of the cache depends on the sequences' lengths.
Cost select_keys_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands.first(1), results, bounds, 0);
  if (operands.size() > kWeightsOperand) cost.activation_bytes += operands[kWeightsOperand].bytes(bounds);
  return cost;
}

/// The scores of a token's list for the keys at positions 0, 1, ...; `weights` is nullptr or has one for each head.
std::vector<double> key_scores(std::span<const ReferenceKv::Row* const> keys, std::span<const float> q,
                               const float* weights) {
  std::vector<double> scores(keys.size());
  for (std::size_t p = 0; p < keys.size(); ++p) {
    const auto& key = keys[p]->k;
    for (std::size_t head = 0; head * key.size() < q.size(); ++head) {
      double dot = 0;
      for (std::size_t i = 0; i < key.size(); ++i) dot += static_cast<double>(q[head * key.size() + i]) * key[i];
      scores[p] += weights == nullptr ? dot : weights[head] * std::max(dot, 0.0);
    }
  }
  return scores;
}

/// Writes the list of chosen blocks, -1 after the last.
void choose_blocks(const SelectKeysAttrs& select, std::span<const double> scores, std::int32_t* list) {
  const auto block = static_cast<std::size_t>(select.block), local = static_cast<std::size_t>(select.local);
  const std::size_t blocks = (scores.size() + block - 1) / block;
  std::vector<double> best(blocks, -std::numeric_limits<double>::infinity());
  for (std::size_t p = 0; p < scores.size(); ++p) best[p / block] = std::max(best[p / block], scores[p]);
  for (std::size_t b = blocks - std::min(blocks, local); b < blocks; ++b)
    best[b] = std::numeric_limits<double>::infinity();
  std::vector<std::int32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return best[a] > best[b]; });
  order.resize(std::min(blocks, static_cast<std::size_t>(select.top_k)));
  std::ranges::sort(order);
  std::fill_n(list, select.top_k, -1);
  std::ranges::copy(order, list);
}

void run_select_keys(const Attrs& attrs, Operands operands, Results results, EvalContext& context) {
  const auto& select = std::get<SelectKeysAttrs>(attrs);
  const Paging paging{*operands[2], *operands[3], *operands[4], context.kv->block_tokens};
  const Tensor& q = *operands[0];
  const Tensor* weights = operands.size() > kWeightsOperand ? operands[kWeightsOperand] : nullptr;
  for (std::int64_t t = 0; t < q.rows(); ++t) {
    std::vector<const ReferenceKv::Row*> keys;
    for (std::int64_t p = 0; p <= paging.positions.i32[t]; ++p) {
      const auto found = context.kv->rows.find({context.state_group, select.layer, paging.physical(t, p)});
      if (found == context.kv->rows.end() || found->second.k.size() != static_cast<std::size_t>(select.head_dim))
        throw Error(ErrorCode::kInternal,
                    fmt::format("select_keys of layer {} reads position {} of sequence {}, which was never stored",
                                select.layer, p, paging.sequence.i32[t]));
      keys.push_back(&found->second);
    }
    const std::span<const float> row(q.f32.data() + t * q.cols(), static_cast<std::size_t>(q.cols()));
    std::int32_t* list = results[0].i32.data() + t * results[0].cols();
    if (weights != nullptr) {
      choose_blocks(select, key_scores(keys, row, weights->f32.data() + t * select.heads), list);
      continue;
    }
    const auto dim = static_cast<std::size_t>(select.head_dim);
    for (std::int64_t head = 0; head < select.heads; ++head, list += select.top_k)
      choose_blocks(select, key_scores(keys, row.subspan(static_cast<std::size_t>(head) * dim, dim), nullptr), list);
  }
}

}  // namespace

std::span<const OpDef> select_keys_defs() {
  static constexpr std::array kDefs{OpDef{.op = Op::kSelectKeys,
                                          .name = kSelectKeys,
                                          .operands_min = 6,
                                          .operands_max = 7,
                                          .attrs_index = attrs_index<SelectKeysAttrs>(),
                                          .infer = infer_select_keys,
                                          .cost = select_keys_cost,
                                          .reference = run_select_keys}};
  return kDefs;
}

}  // namespace forge::ir::ops

// kv_store and attention: writing and reading the paged KV cache. A step mixes tokens of several sequences of different
// lengths; each token carries its sequence and its position, and the block table maps a position to a physical one:
//   physical = block_table[sequence][position / block_tokens] * block_tokens + position % block_tokens
// Example with block_tokens 4 and block_table[0] = {7, 2}: position 5 of sequence 0 is slot 1 of block 2, physical 9.

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "ir/ops/paging.h"

namespace forge::ir::ops {
namespace {

std::vector<TensorType> infer_kv_store(const Attrs& attrs, Types operands) {
  const auto& store = std::get<KvStoreAttrs>(attrs);
  attr_between("kv_store", "layer", store.layer, 0, kCountMax);
  attr_between("kv_store", "half", static_cast<std::int64_t>(store.half), 0,
               static_cast<std::int64_t>(KvHalf::kValues));
  require_state("kv_store", operands, 0);
  const std::size_t paging = operands.size() - kPagingOperands;
  if (store.half != KvHalf::kBoth && paging > 2)
    refuse_operand("kv_store", 2, operands[2], "positions, as it stores one half");
  for (std::size_t i = 1; i < paging; ++i) require_f32("kv_store", operands, i, 2);
  if (paging > 2 && operands[2].shape[0] != operands[1].shape[0])
    refuse_operand("kv_store", 2, operands[2], "as many rows as operand 1, " + operands[1].text());
  require_paging("kv_store", operands, paging, operands[1].shape[0]);
  return {{DType::kState, {}}};
}

void check_attrs(const AttentionAttrs& attention) {
  constexpr std::int64_t kMax = 1 << 16;
  attr_between("attention", "layer", attention.layer, 0, kCountMax);
  attr_between("attention", "heads", attention.heads, 1, kMax);
  attr_between("attention", "kv_heads", attention.kv_heads, 1, attention.heads);
  attr_between("attention", "head_dim", attention.head_dim, 1, kMax);
  attr_between("attention", "value_dim", attention.value_dim, 0, kMax);
  attr_between("attention", "window", attention.window, 0, kCountMax);
  attr_between("attention", "chunk", attention.chunk, 0, kCountMax);
  if (!std::isfinite(attention.alibi) || attention.alibi < 0)
    refuse_attr("attention", "alibi", fmt::to_string(attention.alibi), "0 or more");
  if (attention.heads % attention.kv_heads != 0)
    refuse_attr("attention", "heads", fmt::to_string(attention.heads),
                fmt::format("a multiple of kv_heads = {}", attention.kv_heads));
  if (!std::isfinite(attention.scale)) refuse_attr("attention", "scale", "not finite", "finite");
  if (!std::isfinite(attention.softcap) || attention.softcap < 0)
    refuse_attr("attention", "softcap", fmt::to_string(attention.softcap), "0 or more");
  attr_between("attention", "selected", attention.selected, 0, kSelectedMax);
  if (attention.selected > 0) attr_between("attention", "selected_block", attention.selected_block, 1, kSelectedMax);
}

/// Throws unless the operand lists `selected` blocks of keys for each token: once, or for each KV head.
void require_selected(const AttentionAttrs& attention, Types operands, std::size_t operand) {
  const TensorType& selected = operands[operand];
  const auto has_lists = [&](std::int64_t lists) {
    return selected == TensorType{DType::kI32, {operands[0].shape[0], lists * attention.selected}};
  };
  if (!has_lists(1) && !has_lists(attention.kv_heads))
    refuse_operand("attention", operand, selected,
                   fmt::format("i32, with one list of {} a token or a KV head", attention.selected));
}

std::vector<TensorType> infer_attention(const Attrs& attrs, Types operands) {
  const auto& attention = std::get<AttentionAttrs>(attrs);
  check_attrs(attention);
  require_f32("attention", operands, 0, 2);
  if (operands[0].cols() != attention.heads * attention.head_dim)
    refuse_operand("attention", 0, operands[0],
                   fmt::format("heads * head_dim = {} * {} wide", attention.heads, attention.head_dim));
  require_state("attention", operands, 1);
  require_paging("attention", operands, 2, operands[0].shape[0]);
  require_i32("attention", operands, 5, {operands[4].shape[0]});
  const TensorType sinks{DType::kF32, {attention.heads}};
  const std::size_t optional = operands.size() - 6, lists = attention.selected > 0 ? 1 : 0;
  if (optional < lists || optional > lists + 1)
    refuse_attr("attention", "selected", fmt::to_string(attention.selected),
                "more than 0 if there is an operand `selected`, else 0");
  if (optional > lists && operands[6] != sinks)
    refuse_operand("attention", 6, operands[6], sinks.text() + ", one a head");
  if (lists > 0) require_selected(attention, operands, operands.size() - 1);
  return {{DType::kF32, {operands[0].shape[0], attention.heads * value_dim_of(attention)}}};
}

/// Counts the reads of k and v only: the bytes written depend on the cache's element type, which the target chooses.
Cost kv_store_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return streaming_cost(operands.subspan(1, operands.size() - 1 - kPagingOperands), results, bounds, 0);
}

/// Counts q, sinks, selected keys and the result only: the cache bytes read and the FLOPs depend on the sequences'
/// lengths, which are not known at compile time.
Cost attention_cost(const Attrs& attrs, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands.first(1), results, bounds, 0);
  const bool selects = std::get<AttentionAttrs>(attrs).selected > 0;
  if (selects) cost.activation_bytes += operands.back().bytes(bounds);
  if (operands.size() > (selects ? 7 : 6)) cost.weight_bytes = operands[6].bytes(bounds);
  return cost;
}

void run_kv_store(const Attrs& attrs, Operands operands, Results, EvalContext& context) {
  const auto& store = std::get<KvStoreAttrs>(attrs);
  const auto inputs = operands.last(kPagingOperands);
  const Paging paging{*inputs[0], *inputs[1], *inputs[2], context.kv->block_tokens};
  const Tensor& first = *operands[1];
  const Tensor* k = store.half == KvHalf::kValues ? nullptr : &first;
  const Tensor* v = store.half == KvHalf::kValues           ? &first
                    : operands.size() > 2 + kPagingOperands ? operands[2]
                                                            : nullptr;
  const auto row_of = [](const Tensor& x, std::int64_t row) {
    const auto begin = x.f32.begin() + row * x.cols();
    return std::vector<float>(begin, begin + x.cols());
  };
  for (std::int64_t t = 0; t < first.rows(); ++t) {
    const std::int64_t physical = paging.physical(t, paging.positions.i32[t]);
    auto& row = context.kv->rows[{context.state_group, store.layer, physical}];
    if (k != nullptr) row.k = row_of(*k, t);
    if (v != nullptr) row.v = row_of(*v, t);
  }
}

/// A KV row that a token sees, and how many positions lie between them.
struct SeenRow {
  const ReferenceKv::Row* row = nullptr;
  std::int64_t distance = 0;
};

/// softmax(softcap(q . k * scale)) . v of one head over the KV rows in `seen`, of which there is at least one. A
/// sink (arXiv 2309.17453) is an additional score without a value: it enlarges the softmax denominator and adds nothing
/// to the sum.
void attend(const AttentionAttrs& attention, std::span<const SeenRow> seen, std::int64_t head, const float* sink,
            const float* q, float* out) {
  const std::int64_t dim = attention.head_dim, value_dim = value_dim_of(attention);
  const std::int64_t kv_head = head / (attention.heads / attention.kv_heads);
  const double slope = attention.alibi > 0 ? alibi_slope(attention.alibi, attention.heads, head) : 0;
  std::vector<double> scores(seen.size());
  for (std::size_t j = 0; j < seen.size(); ++j) {
    for (std::int64_t i = 0; i < dim; ++i) scores[j] += static_cast<double>(q[i]) * seen[j].row->k[kv_head * dim + i];
    scores[j] *= attention.scale;
    if (attention.softcap > 0) scores[j] = attention.softcap * std::tanh(scores[j] / attention.softcap);
    scores[j] -= slope * static_cast<double>(seen[j].distance);
  }
  const double largest = *std::ranges::max_element(scores);
  const double top = sink == nullptr ? largest : std::max<double>(largest, *sink);
  double total = sink == nullptr ? 0 : std::exp(*sink - top);
  for (double& score : scores) total += score = std::exp(score - top);
  const auto value_of = [&](const ReferenceKv::Row& row, std::int64_t i) {
    return row.v.empty() ? row.k[kv_head * dim + i] : row.v[kv_head * value_dim + i];
  };
  for (std::int64_t i = 0; i < value_dim; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < seen.size(); ++j) sum += scores[j] * value_of(*seen[j].row, i);
    out[i] = static_cast<float>(sum / total);
  }
}

/// The first position that the token at `position` sees: neither before its sliding window nor before its chunk.
std::int64_t first_seen(const AttentionAttrs& attention, std::int64_t position) {
  const std::int64_t of_window = attention.window > 0 ? position - attention.window + 1 : 0;
  const std::int64_t of_chunk = attention.chunk > 0 ? position / attention.chunk * attention.chunk : 0;
  return std::max({std::int64_t{0}, of_window, of_chunk});
}

/// The rows of `seen` in the blocks that `token`, which is at `position`, lists for this KV head.
std::vector<SeenRow> selected_of(const AttentionAttrs& attention, const Tensor& lists, std::int64_t token,
                                 std::int64_t position, std::int64_t kv_head, std::span<const SeenRow> seen) {
  const std::int64_t list = lists.cols() == attention.selected ? 0 : kv_head;
  const std::int32_t* begin = lists.i32.data() + token * lists.cols() + list * attention.selected;
  const std::set<std::int64_t> blocks(begin, begin + attention.selected);
  std::vector<SeenRow> kept;
  for (const SeenRow& row : seen)
    if (blocks.contains((position - row.distance) / attention.selected_block)) kept.push_back(row);
  if (kept.empty()) throw Error(ErrorCode::kInternal, fmt::format("no key is selected at position {}", position));
  return kept;
}

/// Attention is causal: the token at position p sees positions first_seen(p) to p, its own included. kv_store has run
/// before, so this step's rows are in the cache.
void run_attention(const Attrs& attrs, Operands operands, Results results, EvalContext& context) {
  const auto& attention = std::get<AttentionAttrs>(attrs);
  const Paging paging{*operands[2], *operands[3], *operands[4], context.kv->block_tokens};
  const Tensor& q = *operands[0];
  const std::int64_t value_dim = value_dim_of(attention);
  const bool selects = attention.selected > 0;
  const Tensor* sinks = operands.size() > (selects ? 7 : 6) ? operands[6] : nullptr;
  const auto fits = [&](const ReferenceKv::Row& row) {
    return row.k.size() == static_cast<std::size_t>(attention.kv_heads * attention.head_dim) &&
           (row.v.empty() || row.v.size() == static_cast<std::size_t>(attention.kv_heads * value_dim));
  };
  for (std::int64_t t = 0; t < q.rows(); ++t) {
    const std::int64_t position = paging.positions.i32[t];
    std::vector<SeenRow> seen;
    for (std::int64_t p = first_seen(attention, position); p <= position; ++p) {
      const auto found = context.kv->rows.find({context.state_group, attention.layer, paging.physical(t, p)});
      if (found == context.kv->rows.end() || !fits(found->second))
        throw Error(ErrorCode::kInternal,
                    fmt::format("attention of layer {} reads position {} of sequence {}, which was never stored",
                                attention.layer, p, paging.sequence.i32[t]));
      seen.push_back({&found->second, position - p});
    }
    if (seen.empty()) throw Error(ErrorCode::kInternal, fmt::format("attention at position {}", position));
    for (std::int64_t head = 0; head < attention.heads; ++head) {
      const float* sink = sinks == nullptr ? nullptr : sinks->f32.data() + head;
      const std::int64_t kv_head = head / (attention.heads / attention.kv_heads);
      const auto kept = selects ? selected_of(attention, *operands.back(), t, position, kv_head, seen) : seen;
      attend(attention, kept, head, sink, q.f32.data() + t * q.cols() + head * attention.head_dim,
             results[0].f32.data() + t * results[0].cols() + head * value_dim);
    }
  }
}

}  // namespace

std::span<const OpDef> attention_defs() {
  static constexpr std::array kDefs{
      OpDef{.op = Op::kKvStore,
            .name = "kv_store",
            .operands_min = 5,
            .operands_max = 6,
            .attrs_index = attrs_index<KvStoreAttrs>(),
            .has_effect = true,
            .infer = infer_kv_store,
            .cost = kv_store_cost,
            .reference = run_kv_store},
      OpDef{.op = Op::kAttention,
            .name = "attention",
            .operands_min = 6,
            .operands_max = 8,
            .attrs_index = attrs_index<AttentionAttrs>(),
            .infer = infer_attention,
            .cost = attention_cost,
            .reference = run_attention},
  };
  return kDefs;
}

}  // namespace forge::ir::ops

namespace forge::ir {

float alibi_slope(float max_bias, std::int64_t heads, std::int64_t head) {
  std::int64_t n = 1;
  while (2 * n <= heads) n *= 2;
  const double power = head < n ? static_cast<double>(head + 1) : static_cast<double>(2 * (head - n) + 1) / 2;
  return static_cast<float>(std::exp2(-static_cast<double>(max_bias) * power / static_cast<double>(n)));
}

}  // namespace forge::ir

// Reads attention steps.

#include <limits>

#include "runtime/cpu/read_steps.h"
#include "runtime/cpu/tile_op_reader.h"

namespace forge::runtime {
namespace {

constexpr std::int64_t kSelectedMax = 1 << 20;  ///< of the numbers in a list of keys, and of the positions of a block

/// Fills in an AttentionStep; the block table and the length are set in each forward (run_attention.cc).
class AttentionReader : PlanReader {
 public:
  explicit AttentionReader(const PlanReader& reader) : PlanReader(reader), ops_(reader) {}

  void run(const plan::AttentionT& in, CpuStep& step) const {
    step.kind = StepKind::kAttention;
    auto& out = step.attention;
    const std::size_t heads = number(in.heads, 1, 1 << 16);
    take_state(in, heads, out);
    const auto& params = out.params;
    const std::size_t tokens = tokens_of(step), width = heads * params.kv.value_dim;
    const auto q = read_rows(in.q, tokens, heads * params.kv.head_dim);
    out.q = floats(q.data);
    out.q_stride = q.stride;
    take_partials(in, heads, out);
    if (!in.slopes.empty() && in.slopes.size() != heads) fail("it has ALiBi slopes for another number of heads");
    out.slopes = in.slopes;
    if (has_operand(in.sinks)) out.sinks = floats(read(in.sinks, heads * sizeof(float)));
    if (has_operand(in.selected_keys)) take_selected(in, tokens, out);
    // Epilogue tiles are the query heads of one KV head: a task never has fewer.
    const TileShape shape{
        .rows = tokens, .width = width, .unit = params.group * params.kv.value_dim, .rows_are_tokens = true};
    if (has_operand(in.out)) out.ops.push_back(ops_.store(in.out, shape));
    if (!has_operand(in.quantized)) return;
    plan::QuantizeT quantize;
    quantize.out = in.quantized;
    quantize.cols = static_cast<std::int64_t>(width);
    out.ops.push_back(ops_.quantize(quantize, shape));
  }

 private:
  /// The KV cache that the step reads: its shape must match the step, and its window must not be smaller than the
  /// step's, because blocks before the group's window are freed.
  void take_state(const plan::AttentionT& in, std::size_t heads, AttentionStep& out) const {
    const auto& state = operand(in.state);
    const auto& group = kv_group(state);
    auto& params = out.params;
    params.kv = kv_shape_of(group);
    const auto kv_heads = number(in.kv_heads, 1, 1 << 16);
    if (heads % kv_heads != 0 || kv_heads != params.kv.heads || number(in.head_dim, 1) != params.kv.head_dim ||
        number(in.value_dim, 1) != params.kv.value_dim)
      fail("the attention's heads differ from its KV group's");
    params.group = heads / kv_heads;
    params.window = static_cast<std::int32_t>(number(in.window, 0, std::numeric_limits<std::int32_t>::max()));
    params.chunk = static_cast<std::int32_t>(number(in.chunk, 0, std::numeric_limits<std::int32_t>::max()));
    params.scale = in.scale;
    params.softcap = in.softcap;
    if (group.window() > 0 && (params.window == 0 || params.window > group.window()))
      fail("the attention's window is larger than its KV group's");
    out.kv_group = state.index();
    params.pool = blocks_.kv[state.index()].data + layer_offset(state);
    params.block_stride = blocks_.kv[state.index()].block_stride;
  }

  void take_selected(const plan::AttentionT& in, std::size_t tokens, AttentionStep& out) const {
    require_type(in.selected_keys, DType::kI32);
    out.lists = number(in.lists, 1, 1 << 16);
    if (out.lists != 1 && out.lists != out.params.kv.heads) fail("its lists of keys are neither one nor one a KV head");
    out.selected_count = number(in.selected, 1, kSelectedMax);
    out.selected_block = number(in.selected_block, 1, kSelectedMax);
    const auto rows = read_rows(in.selected_keys, tokens, out.lists * out.selected_count);
    out.selected = ints(rows.data);
    out.selected_stride = rows.stride;
  }

  /// Scratch of split attention: partial results [split_tokens][KV heads][chunks_max][group].
  void take_partials(const plan::AttentionT& in, std::size_t heads, AttentionStep& out) const {
    const std::size_t scratch = number(in.scratch_bytes, 0), blocks = number(in_.bounds.table_blocks(), 1, 1 << 24);
    out.split_tokens = number(in.split_tokens, 0, 64);
    out.chunks_max = cpu::attention_chunks(blocks * cpu::kKvBlockTokens);
    const std::size_t needed = out.split_tokens * heads * out.chunks_max *
                               cpu::attention_partial_floats(out.params.kv.value_dim) * sizeof(float);
    if (scratch < needed) fail("the attention's scratch is too small");
    if (scratch > 0) out.partials = floats(writable(in.partials, scratch));
  }

  TileOpReader ops_;
};

/// Fills in a SelfAttentionStep.
class SelfAttentionReader : PlanReader {
 public:
  explicit SelfAttentionReader(const PlanReader& reader) : PlanReader(reader) {}

  void run(const plan::SelfAttentionT& in, CpuStep& step) const {
    step.kind = StepKind::kSelfAttention;
    auto& out = step.self_attention;
    const std::size_t heads = number(in.heads, 1, 1 << 16), kv_heads = number(in.kv_heads, 1, 1 << 16);
    const std::size_t dim = number(in.head_dim, 1, static_cast<std::int64_t>(cpu::kHeadDimMax));
    if (heads % kv_heads != 0) fail("its heads are not a multiple of its KV heads");
    out.params.kv = {.type = DType::kF16, .heads = kv_heads, .head_dim = dim, .value_dim = dim};
    out.params.group = heads / kv_heads;
    out.params.scale = in.scale;
    const std::size_t window = number(in.window, 0, std::numeric_limits<std::int32_t>::max());
    if (!in.slopes.empty() && in.slopes.size() != heads) fail("it has ALiBi slopes for another number of heads");
    out.slopes = in.slopes;
    out.reach = window == 0 ? -1 : static_cast<std::int32_t>(window / 2);
    const std::size_t tokens = tokens_of(step);
    const auto rows = [&](std::uint16_t role, std::size_t count) {
      const auto x = read_rows(role, tokens, count * dim);
      return cpu::ConstTile(floats(x.data), tokens, count * dim, x.stride);
    };
    out.q = rows(in.q, heads);
    out.k = rows(in.k, kv_heads);
    out.v = rows(in.v, kv_heads);
    const auto result = writable_rows(in.out, tokens, heads * dim);
    out.out = floats(result.data);
    out.out_stride = result.stride;
    const std::size_t blocks = cpu::self_attention_blocks(tokens, number(in_.bounds.sequences(), 1, 1 << 20)) *
                               cpu::kv_block_bytes(out.params.kv);
    if (number(in.cache_bytes, 0) < blocks) fail("the attention's scratch is too small");
    out.cache = writable(in.cache, blocks);
    out.params.block_stride = cpu::kv_block_bytes(out.params.kv);
  }
};

/// Fills in a SelectKeysStep; the block table and the positions are set in each forward (run_select_keys.cc).
class SelectKeysReader : PlanReader {
 public:
  explicit SelectKeysReader(const PlanReader& reader) : PlanReader(reader) {}

  void run(const plan::SelectKeysT& in, CpuStep& step) const {
    step.kind = StepKind::kSelectKeys;
    auto& out = step.select_keys;
    auto& call = out.call;
    const auto& state = operand(in.state);
    const auto& group = kv_group(state);
    call.kv = kv_shape_of(group);
    if (call.kv.heads != 1 || !call.kv.shared_row || group.window() != 0 ||
        call.kv.head_dim != number(in.head_dim, 1, static_cast<std::int64_t>(cpu::kHeadDimMax)))
      fail("its index keys are not those of the KV group");
    out.kv_group = state.index();
    call.pool = blocks_.kv[state.index()].data + layer_offset(state);
    call.block_stride = blocks_.kv[state.index()].block_stride;
    call.heads = number(in.heads, 1, 1 << 16);
    out.choice.top_k = number(in.top_k, 1, kSelectedMax);
    out.choice.block = number(in.block, 1, kSelectedMax);
    out.choice.local = number(in.local, 0, in.top_k);
    const std::size_t tokens = tokens_of(step);
    const auto q = read_rows(in.q, tokens, call.heads * call.kv.head_dim);
    call.q = floats(q.data);
    out.q_stride = q.stride;
    out.lists = call.heads;
    if (has_operand(in.weights)) {
      const auto weights = read_rows(in.weights, tokens, call.heads);
      call.weights = floats(weights.data);
      out.weights_stride = weights.stride;
      out.lists = 1;
    }
    const auto result = writable_rows(in.out, tokens, out.lists * out.choice.top_k);
    require_type(in.out, DType::kI32);
    out.out = ints(result.data);
    out.out_stride = result.stride;
    take_scores(in, tokens, out);
  }

 private:
  void take_scores(const plan::SelectKeysT& in, std::size_t tokens, SelectKeysStep& out) const {
    out.together = number(in.tokens, 1, static_cast<std::int64_t>(tokens));
    out.positions = number(in_.bounds.table_blocks(), 1, 1 << 24) * cpu::kKvBlockTokens;
    const std::size_t of_token = out.lists * 2 * out.positions * sizeof(float), scratch = number(in.scratch_bytes, 0);
    if (scratch / of_token < out.together) fail("its scratch is too small");
    out.scores = floats(writable(in.scores, out.together * of_token));
  }
};

}  // namespace

void read_select_keys(const PlanReader& reader, const plan::SelectKeysT& select, CpuStep& out) {
  SelectKeysReader(reader).run(select, out);
}
void read_self_attention(const PlanReader& reader, const plan::SelfAttentionT& attention, CpuStep& out) {
  SelfAttentionReader(reader).run(attention, out);
}
void read_attention(const PlanReader& reader, const plan::AttentionT& attention, CpuStep& out) {
  AttentionReader(reader).run(attention, out);
}

}  // namespace forge::runtime

// Reads steps with recurrent state.

#include "runtime/cpu/read_steps.h"

namespace forge::runtime {
namespace {

using RecurrentKind = RecurrentStep::Kind;

constexpr std::int64_t kStateHeadsMax = 1 << 20, kStateColumnsMax = 1 << 24;
constexpr auto kRowsOfState = static_cast<std::int64_t>(cpu::kStateRowsMax);

class RecurrentReader : PlanReader {
 public:
  explicit RecurrentReader(const PlanReader& reader) : PlanReader(reader) {}

  void short_conv(const plan::ShortConvT& in, CpuStep& step) const {
    constexpr std::uint8_t kNone = 255;
    auto& out = begin(RecurrentKind::kShortConv, step);
    auto& call = out.conv;
    call.columns = number(in.columns, 1, kStateColumnsMax);
    call.taps = number(in.taps, 2, static_cast<std::int64_t>(cpu::kConvTapsMax));
    out.rows = call.taps - 1;
    out.columns = call.columns;
    call.x = token_rows(in.x, step, call.columns);
    call.kernel = floats(read(in.kernel, call.columns * call.taps * sizeof(float)));
    if (has_operand(in.bias)) call.bias = floats(read(in.bias, call.columns * sizeof(float)));
    take_out(in.out, step, call.columns, call);
    if (in.activation != kNone) {
      if (in.activation >= elementwise::kFunctionCount) fail("an unknown elementwise function");
      out.activation = kernels_.unary(static_cast<elementwise::Function>(in.activation));
      if (out.activation == nullptr) fail("an elementwise function that does not take one operand");
    }
    take_state(in.state, out);
  }

  void delta_rule(const plan::DeltaRuleT& in, CpuStep& step) const {
    auto& out = begin(RecurrentKind::kDeltaRule, step);
    auto& call = out.delta;
    out.heads = number(in.heads, 1, kStateHeadsMax);
    out.key_heads = number(in.key_heads, 1, kStateHeadsMax);
    if (out.heads % out.key_heads != 0) fail("its heads are not a multiple of its key heads");
    out.rows = call.key_dim = number(in.key_dim, 1, kRowsOfState);
    out.columns = call.columns = number(in.value_dim, 1, kStateColumnsMax);
    out.interleaved = in.interleaved;
    call.decay_each_row = in.decay_each_channel;
    call.scale = in.scale;
    call.norm_eps = in.norm_eps;
    call.q = token_rows(in.q, step, out.key_heads * out.rows);
    call.k = token_rows(in.k, step, out.key_heads * out.rows);
    call.v = token_rows(in.v, step, out.heads * out.columns);
    call.decay = token_rows(in.decay, step, out.heads * (call.decay_each_row ? out.rows : 1));
    call.beta = token_rows(in.beta, step, out.heads);
    take_out(in.out, step, out.heads * out.columns, call);
    take_state(in.state, out);
  }

  void selective_scan(const plan::SelectiveScanT& in, CpuStep& step) const {
    const bool channels = in.head_dim == 1;
    auto& out = begin(channels ? RecurrentKind::kScanChannels : RecurrentKind::kScanHead, step);
    auto& call = out.scan;
    const std::size_t heads = number(in.heads, 1, kStateHeadsMax), dim = number(in.head_dim, 1, kStateColumnsMax);
    const std::size_t groups = number(in.groups, 1, kStateHeadsMax);
    if (heads % groups != 0) fail("its heads are not a multiple of its groups");
    // Heads of one column are computed side by side, those of a group in one task.
    out.heads = channels ? groups : heads;
    out.key_heads = groups;
    out.rows = call.state_dim = number(in.state_dim, 1, kRowsOfState);
    out.columns = call.columns = channels ? heads / groups : dim;
    call.a_each_state = in.a_each_state;
    call.x = token_rows(in.x, step, heads * dim);
    call.dt = token_rows(in.dt, step, heads);
    call.b = token_rows(in.b, step, groups * out.rows);
    call.c = token_rows(in.c, step, groups * out.rows);
    call.a = floats(read(in.a, heads * (call.a_each_state ? out.rows : 1) * sizeof(float)));
    call.d = floats(read(in.d, heads * sizeof(float)));
    take_out(in.out, step, heads * dim, call);
    take_state(in.state, out);
  }

  void rwkv7(const plan::Rwkv7T& in, CpuStep& step) const {
    auto& out = begin(RecurrentKind::kRwkv7, step);
    auto& call = out.rwkv;
    out.heads = out.key_heads = number(in.heads, 1, kStateHeadsMax);
    out.rows = out.columns = call.head_dim = call.columns = number(in.head_dim, 1, kRowsOfState);
    const std::size_t width = out.heads * out.columns;
    call.r = token_rows(in.r, step, width);
    call.w = token_rows(in.w, step, width);
    call.k = token_rows(in.k, step, width);
    call.v = token_rows(in.v, step, width);
    call.a = token_rows(in.a, step, width);
    call.b = token_rows(in.b, step, width);
    take_out(in.out, step, width, call);
    take_state(in.state, out);
  }

 private:
  static RecurrentStep& begin(RecurrentKind kind, CpuStep& step) {
    step.kind = StepKind::kRecurrent;
    step.recurrent.kind = kind;
    return step.recurrent;
  }
  cpu::TokenFloats token_rows(std::uint16_t role, const CpuStep& step, std::size_t width) const {
    const auto rows = read_rows(role, tokens_of(step), width);
    return {floats(rows.data), rows.stride};
  }
  void take_out(std::uint16_t role, const CpuStep& step, std::size_t width, cpu::StateCall& call) const {
    const auto rows = writable_rows(role, tokens_of(step), width);
    call.out = floats(rows.data);
    call.out_stride = rows.stride;
  }
  /// The recurrent group and layer of the step; the group's slots must be as large as the step's state.
  void take_state(std::uint16_t role, RecurrentStep& out) const {
    const auto& of = operand(role);
    if (of.space() != plan::Space::Recurrent || of.index() >= program_.recurrent_groups.size())
      fail("an operand is not a recurrent group");
    const auto& group = program_.recurrent_groups[of.index()];
    if (of.offset() >= static_cast<std::uint64_t>(group.layers())) fail("a recurrent layer is out of range");
    const auto& pool = blocks_.recurrent[of.index()];
    if (pool.layer_bytes != out.heads * out.rows * out.columns * sizeof(float))
      fail("the step's recurrent state differs in size from its group's");
    out.group = of.index();
    out.layer_offset = of.offset() * pool.layer_bytes;
  }
};

}  // namespace

void read_short_conv(const PlanReader& reader, const plan::ShortConvT& conv, CpuStep& out) {
  RecurrentReader(reader).short_conv(conv, out);
}
void read_delta_rule(const PlanReader& reader, const plan::DeltaRuleT& delta, CpuStep& out) {
  RecurrentReader(reader).delta_rule(delta, out);
}
void read_selective_scan(const PlanReader& reader, const plan::SelectiveScanT& scan, CpuStep& out) {
  RecurrentReader(reader).selective_scan(scan, out);
}
void read_rwkv7(const PlanReader& reader, const plan::Rwkv7T& rwkv, CpuStep& out) {
  RecurrentReader(reader).rwkv7(rwkv, out);
}

}  // namespace forge::runtime

// Decoding of a plan's variants: dispatches each step to its reader (read_steps.h).

#include "runtime/cpu/cpu_program.h"

#include <utility>

#include "runtime/cpu/read_steps.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

/// Reads the bounds and the steps of one variant.
class VariantReader : PlanReader {
 public:
  using PlanReader::PlanReader;

  CpuVariant run() {
    CpuVariant out;
    out.name = in_.name;
    out.tokens = number(in_.bounds.tokens(), 1, kRowsMax);
    out.rows = number(in_.bounds.rows(), 1, kRowsMax);
    out.sequences = number(in_.bounds.sequences(), 1, 1 << 20);
    out.table_blocks = number(in_.bounds.table_blocks(), 1, 1 << 24);
    out.hidden_width = number(in_.hidden_width, 0, 1 << 24);
    for (const auto& step : in_.steps) {
      if (step == nullptr) fail("a step is missing");
      step_ = step.get();
      out.steps.push_back(read_step(*step));
    }
    return out;
  }

 private:
  CpuStep read_step(const plan::StepT& step) const {
    CpuStep out{.label = step.label,
                .layer = step.layer,
                .weight_bytes = step.weight_bytes,
                .activation_bytes = step.activation_bytes,
                .flops = step.flops};
    const auto& body = step.body;
    if (body.value == nullptr) fail("the step has no body");
    switch (body.type) {
      case plan::Body::Tile:
        read_tile(*this, *body.AsTile(), out);
        break;
      case plan::Body::Attention:
        read_attention(*this, *body.AsAttention(), out);
        break;
      case plan::Body::NormRows:
        read_norm_rows(*this, *body.AsNormRows(), out);
        break;
      case plan::Body::MatchRms:
        read_match_rms(*this, *body.AsMatchRms(), out);
        break;
      case plan::Body::GaussianTopk:
        read_gaussian_topk(*this, *body.AsGaussianTopk(), out);
        break;
      case plan::Body::Route:
        read_route(*this, *body.AsRoute(), out);
        break;
      case plan::Body::RopeFrequencies:
        read_rope_frequencies(*this, *body.AsRopeFrequencies(), out);
        break;
      case plan::Body::RopeAngles:
        read_rope_angles(*this, *body.AsRopeAngles(), out);
        break;
      case plan::Body::SplitPairs:
        read_split_pairs(*this, *body.AsSplitPairs(), out);
        break;
      case plan::Body::Arrange:
        read_arrange(*this, *body.AsArrange(), out);
        break;
      case plan::Body::SelfAttention:
        read_self_attention(*this, *body.AsSelfAttention(), out);
        break;
      case plan::Body::SelectKeys:
        read_select_keys(*this, *body.AsSelectKeys(), out);
        break;
      case plan::Body::ShortConv:
        read_short_conv(*this, *body.AsShortConv(), out);
        break;
      case plan::Body::DeltaRule:
        read_delta_rule(*this, *body.AsDeltaRule(), out);
        break;
      case plan::Body::SelectiveScan:
        read_selective_scan(*this, *body.AsSelectiveScan(), out);
        break;
      case plan::Body::Rwkv7:
        read_rwkv7(*this, *body.AsRwkv7(), out);
        break;
      default:
        fail("the step is not a CPU step");
    }
    return out;
  }
};

}  // namespace

// block_bytes of the plan must be exactly what the kernels expect, so a wrong geometry cannot lead outside the pool.
cpu::KvShape kv_shape_of(const plan::KvGroup& group) {
  const auto in = [](std::int64_t value, std::int64_t high) { return value >= 1 && value <= high; };
  const auto* type = find_dtype(group.dtype());
  if (type != nullptr && in(group.layers(), 1 << 16) && in(group.kv_heads(), 1 << 16) &&
      in(group.head_dim(), cpu::kHeadDimMax) &&
      in(group.value_dim(), group.shared_row() ? group.head_dim() : static_cast<std::int64_t>(cpu::kHeadDimMax)) &&
      group.block_tokens() == static_cast<std::int32_t>(cpu::kKvBlockTokens)) {
    const cpu::KvShape shape{.type = type->type,
                             .heads = static_cast<std::size_t>(group.kv_heads()),
                             .head_dim = static_cast<std::size_t>(group.head_dim()),
                             .value_dim = static_cast<std::size_t>(group.value_dim()),
                             .shared_row = group.shared_row()};
    if (cpu::kv_type_fits(shape) && static_cast<std::size_t>(group.block_bytes()) == cpu::kv_block_bytes(shape))
      return shape;
  }
  throw Error(ErrorCode::kPlan, "the plan's KV geometry is broken", {}, "compile the plan again");
}

CpuVariant decode_variant(const plan::VariantT& variant, const plan::ProgramT& program, const Blocks& blocks,
                          StepIo& io, const cpu::Kernels& kernels) {
  return VariantReader(variant, program, blocks, io, kernels).run();
}

}  // namespace forge::runtime

#pragma once
// Readers of a plan's CPU steps: one function per step body of plan.fbs. Each checks every number, resolves every
// operand and fills in `out`, which already has the step's label and costs. Errors: Error(kPlan), naming the step.

#include "runtime/cpu/plan_reader.h"

namespace forge::runtime {

void read_tile(const PlanReader& reader, const plan::TileT& tile, CpuStep& out);
void read_attention(const PlanReader& reader, const plan::AttentionT& attention, CpuStep& out);
void read_norm_rows(const PlanReader& reader, const plan::NormRowsT& norm, CpuStep& out);
void read_match_rms(const PlanReader& reader, const plan::MatchRmsT& match, CpuStep& out);
void read_gaussian_topk(const PlanReader& reader, const plan::GaussianTopkT& topk, CpuStep& out);
void read_route(const PlanReader& reader, const plan::RouteT& route, CpuStep& out);
void read_rope_frequencies(const PlanReader& reader, const plan::RopeFrequenciesT& rope, CpuStep& out);
void read_rope_angles(const PlanReader& reader, const plan::RopeAnglesT& rope, CpuStep& out);
void read_split_pairs(const PlanReader& reader, const plan::SplitPairsT& split, CpuStep& out);
void read_arrange(const PlanReader& reader, const plan::ArrangeT& arrange, CpuStep& out);
void read_self_attention(const PlanReader& reader, const plan::SelfAttentionT& attention, CpuStep& out);
void read_select_keys(const PlanReader& reader, const plan::SelectKeysT& select, CpuStep& out);
void read_short_conv(const PlanReader& reader, const plan::ShortConvT& conv, CpuStep& out);
void read_delta_rule(const PlanReader& reader, const plan::DeltaRuleT& delta, CpuStep& out);
void read_selective_scan(const PlanReader& reader, const plan::SelectiveScanT& scan, CpuStep& out);
void read_rwkv7(const PlanReader& reader, const plan::Rwkv7T& rwkv, CpuStep& out);

}  // namespace forge::runtime

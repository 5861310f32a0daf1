// The one pipeline. Its order is design:
//
// Clean first, on the portable graph, where there is least to look at and nothing target-specific to respect:
//   choose_rope_factors settles what depends on the program's context, before anything is computed from it;
//   canonicalise brings scales and operands into one form, fold_constants computes what reads constants only (RoPE's
//   frequencies), eliminate_common_subexpressions then sees the same table of angles in every layer as one, and
//   eliminate_dead_nodes sweeps up behind all three.
// Restructure next, while matmuls still read plain f32 values:
//   merge_qkv and merge_gate_up come before split_rms_norm, because the split adds one node a consumer: merged first,
//   there is one consumer where there were three, and sibling matmuls are still recognised by their common operand.
//   split_rms_norm comes before quantize_activations: what is to be quantised is x*w, which the producer of x has at
//   hand, not the norm's result, which no step has before all squares are summed.
// Lower: quantize_activations gives every matmul the activations that the target multiplies. It is required; from here
//   on graphs are the target's own.
// Group last, because groups must survive: no pass after this changes an edge. Special patterns are asked before the
//   general one: fuse_qkv and fuse_glu reach over splits, which no epilogue does; fuse_attention has a single member to
//   offer; fuse_epilogues takes what is left to any producer that can hold it.
// Then, not graph passes: bind_variants gives the symbols their bounds, and for each variant chooses kernels (and so
//   scratch), schedules, and packs the arena. Kernels come before the arena, so that scratch lies in it.

#include <array>
#include <chrono>

#include "passes/dump.h"
#include "passes/passes.h"
#include "passes/schedule/bind_variants.h"
#include "passes/schedule/give_hidden.h"
#include "support/error.h"

namespace forge::passes {
namespace {

constexpr std::array kPipeline{
    Pass{"choose_rope_factors", false, Phase::kPortable, choose_rope_factors,
         "of two lists of RoPE factors, takes the one for the program's context"},
    Pass{"canonicalise", true, Phase::kPortable, canonicalise,
         "drops factors of 1, merges factors, moves q's factor into attention"},
    Pass{"fold_constants", true, Phase::kPortable, fold_constants, "computes what reads only constants"},
    Pass{"eliminate_common_subexpressions", true, Phase::kPortable, eliminate_common_subexpressions,
         "computes equal values once"},
    Pass{"eliminate_dead_nodes", true, Phase::kPortable, eliminate_dead_nodes, "drops what no output needs"},
    Pass{"merge_qkv", true, Phase::kRestructured, merge_qkv, "one matmul for q, k and v"},
    Pass{"merge_gate_up", true, Phase::kRestructured, merge_gate_up, "one matmul for gate and up"},
    Pass{"split_rms_norm", true, Phase::kRestructured, split_rms_norm,
         "splits a norm between the producer of its operand and its consumers"},
    Pass{"quantize_activations", false, Phase::kLowered, quantize_activations,
         "quantises activations once where the target multiplies int8"},
    Pass{"fuse_qkv", true, Phase::kGrouped, fuse_qkv, "1/rms, bias, RoPE and the KV write join the QKV matmul"},
    Pass{"fuse_glu", true, Phase::kGrouped, fuse_glu, "the GLU and its quantisation join the gate/up matmul"},
    Pass{"fuse_attention", true, Phase::kGrouped, fuse_attention, "attention quantises its result"},
    Pass{"fuse_epilogues", true, Phase::kGrouped, fuse_epilogues,
         "residuals, norm weights, squares and quantisation join their producers"},
};

}  // namespace

std::span<const Pass> pipeline_passes() {
  return kPipeline;
}

PipelineResult run_pipeline(ir::Graph graph, const Target& target, const PipelineOptions& options) {
  if (options.context < 1 || options.batch_max < 1)
    throw Error(ErrorCode::kUsage, "context and batch must be at least 1");
  PipelineResult result;
  if (options.hidden) graph = give_hidden(std::move(graph));
  PassContext context{.target = target, .notes = {}, .context = options.context};
  ir::verify(graph);
  check_phase(graph, target, Phase::kPortable);
  result.reports = run_passes(graph, kPipeline, context, options);

  PassReport report{.name = "bind_variants", .nodes_before = graph.size(), .nodes_after = graph.size()};
  const auto start = std::chrono::steady_clock::now();
  const auto variants = options.hidden ? target.hidden_variants(options.context, options.batch_max)
                                       : target.variants(options.context, options.batch_max);
  result.program = bind_variants(std::move(graph), target, variants);
  report.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  result.reports.push_back(report);
  result.notes = std::move(context.notes);

  std::size_t number = kPipeline.size();
  for (const Variant& variant : result.program.variants) {
    ++number;
    if (!options.dump_ir_dir.empty())
      write_dump(options.dump_ir_dir, number, variant.name, "ir", schedule_text(result.program, variant));
    if (!options.dump_dot_dir.empty())
      write_dump(options.dump_dot_dir, number, variant.name, "dot", schedule_dot(result.program, variant));
    if (const auto layer = middle_layer(result.program.graph); !options.dump_dot_dir.empty() && layer != ir::kNoLayer)
      write_dump(options.dump_dot_dir, number, variant.name + "-layer" + std::to_string(layer), "dot",
                 schedule_dot(result.program, variant, layer));
  }
  return result;
}

}  // namespace forge::passes

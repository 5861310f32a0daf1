// The pipeline and the reasons for its order:
//
// 1. Simplify, on the portable graph, which is smallest and has nothing specific to the target:
//    choose_rope_factors resolves what depends on the program's context length, so that RoPE's frequencies can be
//    computed; canonicalise brings scales into one form; fold_constants computes nodes whose operands are constants
//    (RoPE's frequencies); eliminate_common_subexpressions then finds that the RoPE tables of all layers are equal; and
//    eliminate_dead_nodes removes what these three have left unused.
// 2. Restructure, while matmuls still read f32 values:
//    merge_qkv and merge_gate_up come before split_rms_norm, which adds one node for each consumer of the norm: after
//    merging there is one consumer instead of three, and before the split the matmuls to merge still share an operand.
//    split_kv_store comes after merge_qkv, which decides whether k and v have one matmul.
//    rotate_keys comes after it, which looks for matmuls behind RoPE and bias only. It is required: kernels of such a
//    cache expect both queries and keys to be transformed.
//    split_rms_norm comes before quantize_activations, because the value to quantise is x*w, which the step that
//    produces x can compute at once. The norm's result does not exist before all squares of a row are summed.
// 3. Lower: quantize_activations gives every matmul the activation type that the target multiplies. It is required;
//    from here on the graph is specific to the target.
// 4. Group last: groups refer to nodes, so no later pass may change an edge. Special patterns come before the general
//    one: fuse_qkv and fuse_glu fuse across splits, which an epilogue cannot; fuse_attention adds one node;
//    fuse_epilogues adds what is left to any producer that can take it.
// 5. bind_variants, which is not a graph pass: binds the symbols to their bounds and, for each variant, chooses
//    kernels, schedules steps and packs the arena. Kernels are chosen before the arena is packed, because they
//    determine scratch.

#include <array>
#include <chrono>

#include "passes/dump.h"
#include "passes/passes.h"
#include "passes/schedule/bind_variants.h"
#include "passes/schedule/output_hidden_rows.h"
#include "support/error.h"

namespace forge::passes {
namespace {

constexpr std::array kPipeline{
    Pass{"choose_rope_factors", false, Phase::kPortable, choose_rope_factors,
         "selects the list of RoPE factors for the program's context length"},
    Pass{"canonicalise", true, Phase::kPortable, canonicalise,
         "removes scales by 1, merges scales, moves the scale of q into attention"},
    Pass{"fold_constants", true, Phase::kPortable, fold_constants, "computes nodes whose operands are constants"},
    Pass{"eliminate_common_subexpressions", true, Phase::kPortable, eliminate_common_subexpressions,
         "computes equal values once"},
    Pass{"eliminate_dead_nodes", true, Phase::kPortable, eliminate_dead_nodes, "removes nodes that no output needs"},
    Pass{"merge_qkv", true, Phase::kRestructured, merge_qkv, "one matmul for q, k and v"},
    Pass{"split_kv_store", true, Phase::kRestructured, split_kv_store,
         "a store for k and one for v, if two matmuls make them"},
    Pass{"rotate_keys", false, Phase::kRestructured, rotate_keys,
         "transforms queries and keys by Hadamard matrices for caches of few bits"},
    Pass{"merge_gate_up", true, Phase::kRestructured, merge_gate_up, "one matmul for gate and up"},
    Pass{"split_rms_norm", true, Phase::kRestructured, split_rms_norm,
         "splits RMSNorm into epilogues of its operand's producer and of its consumers"},
    Pass{"quantize_activations", false, Phase::kLowered, quantize_activations,
         "quantises activations once where the target multiplies int8"},
    Pass{"fuse_qkv", true, Phase::kGrouped, fuse_qkv, "fuses 1/rms, bias, RoPE and the KV write into the QKV matmul"},
    Pass{"fuse_glu", true, Phase::kGrouped, fuse_glu, "fuses the GLU and its quantisation into the gate/up matmul"},
    Pass{"fuse_attention", true, Phase::kGrouped, fuse_attention,
         "fuses the quantisation of its result into attention"},
    Pass{"fuse_epilogues", true, Phase::kGrouped, fuse_epilogues,
         "fuses residuals, norm weights, squares and quantisation into their producers"},
};

}  // namespace

std::span<const Pass> pipeline_passes() {
  return kPipeline;
}

PipelineResult run_pipeline(ir::Graph graph, const Target& target, const PipelineOptions& options) {
  if (options.context < 1 || options.batch_max < 1)
    throw Error(ErrorCode::kUsage, "context and batch must be at least 1");
  PipelineResult result;
  const bool encoder = is_encoder(graph);
  if (options.hidden) graph = output_hidden_rows(std::move(graph));
  PassContext context{.target = target, .notes = {}, .context = options.context};
  ir::verify(graph);
  check_phase(graph, target, Phase::kPortable);
  result.reports = run_passes(graph, kPipeline, context, options);

  PassReport report{.name = "bind_variants", .nodes_before = graph.size(), .nodes_after = graph.size()};
  const auto start = std::chrono::steady_clock::now();
  const auto variants = encoder          ? target.encoder_variants(options.context, options.batch_max)
                        : options.hidden ? target.embedding_variants(options.context, options.batch_max)
                                         : target.variants(options.context, options.batch_max);
  if (variants.empty())
    throw Error(ErrorCode::kModelUnsupported, std::string(target.name()) + " does not support this kind of model",
                encoder ? "it is an encoder" : "it is an embedding model", "run it on the CPU: --device cpu");
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

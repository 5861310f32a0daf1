#pragma once
// The interface between the passes and a target (a CPU class or a GPU architecture): which nodes it can fuse, which
// activation types and weight layouts its kernels take, and which kernel runs a group. Targets implement it in
// codegen/; passes depend on no target by name.

#include <cstdint>
#include <expected>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/value_numbers.h"
#include "passes/kernel_source.h"
#include "passes/schedule/row_layout.h"
#include "runtime/plan/step.h"

namespace forge::passes {

/// How one fused group runs. `step` is complete except for addresses, which lowering to a plan fills in:
///  - an operand with a value lies `offset` bytes into that value; its rows are `row_bytes` apart (0: as the value's);
///  - an operand in Space::Arena without a value lies `offset` bytes into the step's scratch;
///  - an operand in Space::Constants without a value lies `offset` bytes into `constants`;
///  - all other operands are final.
/// A launch runs the code object of `kernel`. A step without a body does nothing: its users compute its values.
struct Choice {
  plan::StepT step;
  std::int64_t scratch_bytes = 0;  ///< arena bytes that the step needs while it runs
  std::int64_t counter_bytes = 0;  ///< bytes of u32 counters in Space::Counters that the step uses
  std::vector<float> constants;    ///< data that the kernel reads besides its operands
  KernelSource kernel;             ///< empty if the target has the kernel precompiled
  std::vector<Choice> then{};      ///< steps that follow at once and share this one's scratch
  std::size_t main = 0;            ///< which of all these has the costs: 0 is this, 1 the first of `then`
};

/// Why a group has no kernel.
struct Refusal {
  std::string why;
  std::string fix;  ///< what the user can do; may be empty
};

/// How a variant stores a value that only some kernels read, in the form that these want.
struct StoredForm {
  DType dtype = DType::kF32;
  bool total = false;  ///< partial sums of squares: the first number of each row is the sum of all of them
};
/// The values whose form differs from the graph's.
using StoredForms = std::map<ir::Value, StoredForm>;

/// The variant for which a step is chosen.
struct Binding {
  ir::Bounds bounds;
  const RowLayout& rows;
  const ir::ValueNumbers& numbers;
  const StoredForms& stored;
  const std::vector<bool>& before_choice;  ///< by node: nodes_before_choices in passes.h
};

/// One target of compilation.
class Target {
 public:
  virtual ~Target() = default;

  /// "cpu-x86-64-v4-vnni", "gfx1100": part of every cache key.
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// The activation type of a matmul with a weight of this type and K columns: a quantised type, or kF32 for none.
  /// before_choice: experts or keys are chosen by what follows from the product (nodes_before_choices in passes.h).
  [[nodiscard]] virtual DType activation_type(DType weight, std::int64_t k, bool before_choice) const = 0;

  /// True if the consumers of an RMSNorm apply 1/rms (split_rms_norm.cc); false if the norm is a step of its own.
  [[nodiscard]] virtual bool splits_rms_norm() const = 0;

  /// Run length in columns at which gate and up alternate in a merged weight of N columns each (merge_gate_up.cc); 0:
  /// do not merge.
  [[nodiscard]] virtual std::int64_t glu_interleave(DType weight, std::int64_t n) const = 0;

  /// True if what needs whole rows, a post-norm or a router, may join the step of the matmul that makes the rows
  /// (fuse_epilogues.cc).
  [[nodiscard]] virtual bool fuses_row_norms() const { return false; }

  /// True if a matmul with this number of columns may be merged with others (merge_qkv.cc).
  [[nodiscard]] virtual bool merges_columns(std::int64_t) const { return true; }

  /// True if other matmuls may be merged behind those, if only elementwise functions read them.
  [[nodiscard]] virtual bool merges_last() const { return false; }

  /// True if keys go into the KV cache transformed by Hadamard matrices, and queries are transformed likewise
  /// (rotate_keys.cc).
  [[nodiscard]] virtual bool rotates_keys() const { return false; }

  /// True if kernels take rows at any distance, so that a range of columns of a value needs no copy (views.h).
  [[nodiscard]] virtual bool views_columns() const { return false; }

  /// Why `members`, in topological order, cannot run as one kernel; nullopt if they can. Fusion passes call it with the
  /// members of a group and the nodes to add. A group that it accepts may be refused by `choose` for its size only.
  [[nodiscard]] virtual std::optional<std::string> group_refusal(const ir::Graph& graph,
                                                                 std::span<const ir::NodeId> members) const = 0;

  /// The values that a variant stores in another form than the graph's. steps: the nodes of each step, in topological
  /// order. Values of other steps' views keep their form.
  [[nodiscard]] virtual StoredForms stored_forms(const ir::Graph&, std::span<const std::vector<ir::NodeId>>,
                                                 const ir::Bounds&) const {
    return {};
  }

  /// The step that runs a group in a variant: the only place where a kernel is selected.
  [[nodiscard]] virtual std::expected<Choice, Refusal> choose(const ir::Graph& graph,
                                                              std::span<const ir::NodeId> members,
                                                              const Binding& binding) const = 0;

  /// True if two steps that do not depend on each other should run side by side in a variant (pair_steps.h).
  [[nodiscard]] virtual bool runs_beside(const ir::Graph&, std::span<const ir::NodeId>, std::span<const ir::NodeId>,
                                         const ir::Bounds&) const {
    return false;
  }
  /// One step that runs both groups side by side; nothing if there is no kernel for it, and they run one after the
  /// other.
  [[nodiscard]] virtual std::optional<Choice> choose_both(const ir::Graph&, std::span<const ir::NodeId>,
                                                          std::span<const ir::NodeId>, const Binding&) const {
    return std::nullopt;
  }

  /// True if the blocks of `next` should do the work of `step` first in a variant (pair_steps.h). Only for a step whose
  /// results nothing but `next` reads: they have no place in the arena then, but for what it stores in the KV cache.
  [[nodiscard]] virtual bool joins(const ir::Graph&, std::span<const ir::NodeId>, std::span<const ir::NodeId>,
                                   const ir::Bounds&) const {
    return false;
  }
  /// The one step of two groups that it joins. Must give one.
  [[nodiscard]] virtual std::optional<Choice> choose_joined(const ir::Graph&, std::span<const ir::NodeId>,
                                                            std::span<const ir::NodeId>, const Binding&) const {
    return std::nullopt;
  }

  /// Steps that sample the next tokens from the logits on the device; none: the host samples.
  [[nodiscard]] virtual std::vector<Choice> sampling(const ir::Graph&, const Binding&) const { return {}; }

  /// Alignment of arena buffers in bytes, a power of two.
  [[nodiscard]] virtual std::int64_t arena_alignment() const { return 64; }

  /// Upper bounds to compile for, the smallest first: decode batch sizes, then prefill chunks.
  struct VariantSpec {
    std::string name;
    ir::Bounds bounds;
  };
  [[nodiscard]] virtual std::vector<VariantSpec> variants(std::int64_t context, std::int64_t batch_max) const = 0;
  /// The same for an embedding model (output_hidden_rows.h), with an output row for every token; empty: the target does
  /// not support them.
  [[nodiscard]] virtual std::vector<VariantSpec> embedding_variants(std::int64_t, std::int64_t) const { return {}; }

  /// The same for an encoder, whose sequences of up to `context` tokens are each in one step; empty: the target does
  /// not support them.
  [[nodiscard]] virtual std::vector<VariantSpec> encoder_variants(std::int64_t, std::int64_t) const { return {}; }

  /// Tokens in one block of the paged KV cache.
  [[nodiscard]] virtual std::int64_t kv_block_tokens() const = 0;
};

}  // namespace forge::passes

#pragma once
// What the passes ask a target: what it can fuse, which activations and layouts it wants, and which step a group
// becomes. Targets implement it in codegen/; passes never name one.

#include <cstdint>
#include <expected>
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

/// How one fused group is run. The step is complete but for addresses, which lowering writes:
///  - an operand with a value is `offset` bytes into that value, its rows `row_bytes` apart (0: as the value's own);
///  - one of Space::Arena without a value is `offset` bytes into the step's scratch;
///  - one of Space::Constants without a value is `offset` bytes into `constants`;
///  - all others are final.
/// A launch's `code` is that of `kernel`. A step without a body does nothing: what it computes its users compute.
struct Choice {
  plan::StepT step;
  std::int64_t scratch_bytes = 0;  ///< taken from the arena while the step runs
  std::int64_t counter_bytes = 0;  ///< u32s of Space::Counters that it uses
  std::vector<float> constants;
  KernelSource kernel;
};

/// Why a group has no kernel.
struct Refusal {
  std::string why;
  std::string fix;  ///< what the user can do; may be empty
};

/// What is known of a variant when its steps are chosen.
struct Binding {
  ir::Bounds bounds;
  const RowLayout& rows;
  const ir::ValueNumbers& numbers;
};

class Target {
 public:
  virtual ~Target() = default;

  /// "cpu-x86-64-v4-vnni", "gfx1100": part of every cache key.
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// The type that activations take before a matmul with this weight: a quantised one, or kF32 to leave them alone.
  [[nodiscard]] virtual DType activation_type(DType weight, std::int64_t k) const = 0;

  /// Is the factor 1/rms applied by the consumer of a norm (true), or is the norm a step of its own (false)?
  [[nodiscard]] virtual bool splits_rms_norm() const = 0;

  /// Columns after which gate and up alternate when they are merged into one weight; 0: do not merge.
  [[nodiscard]] virtual std::int64_t glu_interleave(DType weight, std::int64_t n) const = 0;

  /// Can a matmul of so many columns be part of a merged one?
  [[nodiscard]] virtual bool merges_columns(std::int64_t) const { return true; }

  /// May `members` (a connected set with one or more nodes, in topological order) run as one kernel? Passes call it
  /// with a group and one more node; nullopt when it can, else the reason why not. What it lets pass, `choose` refuses
  /// for its size alone.
  [[nodiscard]] virtual std::optional<std::string> refuses_group(const ir::Graph& graph,
                                                                 std::span<const ir::NodeId> members) const = 0;

  /// The step of a group in a variant: the only place that picks a kernel.
  [[nodiscard]] virtual std::expected<Choice, Refusal> choose(const ir::Graph& graph,
                                                              std::span<const ir::NodeId> members,
                                                              const Binding& binding) const = 0;

  /// Steps that choose the next tokens from the logits, where the target does that itself.
  [[nodiscard]] virtual std::vector<Choice> sampling(const ir::Graph&, const Binding&) const { return {}; }

  /// Alignment of arena buffers in bytes, a power of two.
  [[nodiscard]] virtual std::int64_t arena_alignment() const { return 64; }

  /// Bounds to compile, the smallest first: decode buckets, then prefill chunks.
  struct VariantSpec {
    std::string name;
    ir::Bounds bounds;
  };
  [[nodiscard]] virtual std::vector<VariantSpec> variants(std::int64_t context, std::int64_t batch_max) const = 0;
  /// The same for a model that gives hidden rows (give_hidden.h): of all tokens of a step. None: the target has no
  /// such.
  [[nodiscard]] virtual std::vector<VariantSpec> hidden_variants(std::int64_t, std::int64_t) const { return {}; }

  /// Tokens a KV block holds.
  [[nodiscard]] virtual std::int64_t kv_block_tokens() const = 0;
};

}  // namespace forge::passes

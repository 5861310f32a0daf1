#pragma once
// What the passes ask a target: what it can fuse, which activations and layouts it wants, what a step costs and needs.
// Targets implement it in codegen/; passes never name one.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace forge::passes {

/// How one fused group is run: decided by the target once the variant's bounds are known.
struct KernelChoice {
  std::string kernel;              ///< the kernel's name in plans, dumps and profiles
  std::int64_t scratch_bytes = 0;  ///< taken from the arena while the step runs
  std::string reason;              ///< why this one, for dumps
};

class TargetModel {
 public:
  virtual ~TargetModel() = default;

  /// "cpu-x86-64-v4-vnni", "gfx1100": part of every cache key.
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// The type that activations take before a matmul with this weight: kQ8A, or kF32 to leave them alone.
  [[nodiscard]] virtual DType activation_type(DType weight, std::int64_t k) const = 0;

  /// Is the factor 1/rms applied by the consumer of a norm (true), or is the norm a step of its own (false)?
  [[nodiscard]] virtual bool splits_rms_norm() const = 0;

  /// Columns after which gate and up alternate when they are merged into one weight; 0: do not merge.
  [[nodiscard]] virtual std::int64_t glu_interleave(DType weight, std::int64_t n) const = 0;

  /// Can a matmul of so many columns be part of a merged one?
  [[nodiscard]] virtual bool merges_columns(std::int64_t) const { return true; }

  /// May `members` (a connected set with one or more nodes, in topological order) run as one kernel? Passes call it
  /// with a group and one more node; nullopt when it can, else the reason why not.
  [[nodiscard]] virtual std::optional<std::string> refuses_group(const ir::Graph& graph,
                                                                 std::span<const ir::NodeId> members) const = 0;

  /// The kernel of a group under `bounds`. Throws Error(kModelUnsupported) naming the op when there is none.
  [[nodiscard]] virtual KernelChoice choose_kernel(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                                   const ir::Bounds& bounds) const = 0;

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

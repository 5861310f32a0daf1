#pragma once
// Chooses the steps of a GPU: one function per kind of step. Each step is a launch: the source of a kernel specialised
// for it, and the kernel's pointer arguments as operands, in the order of the kernel's Args struct (kernels/gpu).

#include <cstdint>
#include <expected>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/gpu/attention_config.h"
#include "codegen/gpu/gpu_target.h"
#include "codegen/gpu/heads_draft.h"
#include "codegen/gpu/matmul_config.h"
#include "codegen/gpu/matmul_draft.h"
#include "codegen/gpu/row_norm.h"
#include "codegen/gpu/source/epilogue_source.h"
#include "codegen/gpu/source/kernel_text.h"
#include "codegen/step_operands.h"
#include "runtime/plan/gpu_io.h"

namespace forge::codegen {

/// One object per variant and group of nodes. References must outlive it. deterministic: of GpuTargetModel.
class GpuChooser {
 public:
  GpuChooser(const ir::Graph& graph, const passes::Binding& binding, const GpuTarget& target, const Tuning& tuning,
             const AttentionChoice& attention, const KvFormat& kv, bool deterministic)
      : graph_(graph),
        binding_(binding),
        target_(target),
        tuning_(tuning),
        attention_(attention),
        kv_(kv),
        deterministic_(deterministic),
        operands_(graph, binding.numbers) {}

  /// The step of a group of nodes, or the reason why the group cannot be one.
  std::expected<passes::Choice, std::string> choose(std::span<const ir::NodeId> nodes,
                                                    const DraftRules& rules = kGpuDraftRules);

  /// One launch for two groups that do not depend on each other: blocks of the one, then of the other. Nothing if
  /// either is no single launch, or their blocks do not fit together.
  std::optional<passes::Choice> choose_both(std::span<const ir::NodeId> first,
                                            std::span<const ir::NodeId> second) const;

  /// One launch for a step and the next: an attention behind the step that makes its heads (draft_heads), or the
  /// gathering of the only row behind its matmul (gathers_only_row); nothing if they are neither.
  std::optional<passes::Choice> choose_joined(std::span<const ir::NodeId> step, std::span<const ir::NodeId> next);

  /// The steps that sample the next tokens and write them as the next step's input (kernels/gpu/sampling.h). They run
  /// when no arena buffer is alive any more.
  std::vector<passes::Choice> sampling(std::int64_t vocab);

 private:
  /// Rows that memory has for a step, and the gpu::Count that says how many of them are real.
  struct RowCount {
    std::int64_t bound = 0, count = 0;
  };

  void tile(const TileDraft& draft, const EpilogueShape& shape);
  /// What FillRows takes its rows from: the source type's name, a stem for the kernel's name, and pointers.
  struct RowSource {
    std::string type, stem;
    std::vector<PointerArgument> pointers;
  };
  /// What the last block of a matmul for few tokens does with the rows in scratch (matmul_norm.h): the kernel, what its
  /// source needs besides the matmul's, and the pointers of the tail's arguments.
  struct MatmulTail {
    std::string kernel;
    std::vector<PointerArgument> pointers;
    std::string text;
    ConfigText config;
  };
  /// use: kPlain, or kWholeRows. shares: of experts whose products are summed, each times its share; none: they are
  /// not.
  void matmul(const TileDraft& draft, const EpilogueShape& shape, const EpilogueSource& epilogue,
              const MatmulTail* tail = nullptr, MatmulUse use = MatmulUse::kPlain, ir::Value shares = {});
  void write_stride(const TileDraft& draft, const MatmulWeight& weight, ConfigText& out) const;
  /// Completes the choice of a matmul by matrix instructions. arguments: those of MatmulArgs.
  void launch_tiles(const TileDraft& draft, const TilesConfig& tiles, const EpilogueSource& epilogue,
                    std::string_view stem, const KernelText& text, std::vector<PointerArgument> arguments);
  /// Launches that write what the product needs of its rows to `out`; they return the bytes.
  std::int64_t launch_tile_rows(const TileDraft& draft, const MatmulWeight& weight, DType type,
                                const PointerArgument& out);
  std::int64_t launch_sort_slots(const TileDraft& draft, const MatmulWeight& weight, const PointerArgument& experts,
                                 const PointerArgument& out);
  std::int64_t launch_sum_squares(const ir::Dim& rows, ir::Value squares, const PointerArgument& out);
  /// Adds launches that make the totals of partial sums (StoredForm) that the draft's kernel has just stored.
  void append_totals(const TileDraft& draft);
  static constexpr std::int64_t kBlockThreadsMax = 1024;
  static constexpr std::int64_t kTailTokensMax = 4;  ///< in steps of more tokens a launch of its own does that
  [[nodiscard]] bool has_tail(const TileDraft& draft, const EpilogueShape& shape) const;
  /// The configuration of a matmul by matrix instructions; nothing if it has none (tiles_of).
  [[nodiscard]] std::optional<TilesConfig> matmul_tiles(const TileDraft& draft, const EpilogueShape& shape) const;
  void matmul_and_norm(const RowNormDraft& halves);
  /// True if the waves of a block sum the products of a token's experts.
  [[nodiscard]] bool sums_in_block(const RowNormDraft& halves) const;
  void matmul_and_route(const RoutedDraft& routed);
  void rows(const TileDraft& draft, const EpilogueShape& shape, const EpilogueSource& epilogue);
  [[nodiscard]] RowSource row_source(const TileDraft& draft) const;
  /// waves: of a block that normalises its columns; 0: by their number.
  void fill_rows(const RowSource& source, const TileDraft& draft, const EpilogueShape& shape,
                 const EpilogueSource& epilogue, std::int64_t waves = 0);
  [[nodiscard]] EpilogueContext epilogue_context() const;
  /// Returns the reason if there is no kernel for it, else an empty string. heads: its blocks make these first.
  std::string attention(std::span<const ir::NodeId> nodes, const HeadsDraft* heads = nullptr);
  void add_heads(const HeadsDraft& heads, ir::Value query, KernelText& text,
                 std::vector<PointerArgument>& arguments) const;
  /// Attention on rows whose first columns are the values (MLA). The same.
  std::string latent_attention(std::span<const ir::NodeId> nodes);
  /// The constants of sparse attention; nothing for other attention.
  void write_selection(ir::NodeId node, ConfigText& out) const;
  /// The members of the kernels' Args. nodes: the attention, and optionally the quantize of its result.
  [[nodiscard]] std::vector<PointerArgument> attention_arguments(std::span<const ir::NodeId> nodes,
                                                                 std::int64_t counter_count);
  /// How an attention's kernel writes its result: as f32, and as rows for matmuls (row_format; 0: not).
  struct AttentionOutput {
    bool stored = false;
    int format = 0;
  };
  [[nodiscard]] AttentionOutput attention_output(std::span<const ir::NodeId> nodes) const;
  /// The reason why the rows of q do not lie where a kernel needs them; empty if they do.
  [[nodiscard]] std::string refuses_query(ir::Value q) const;
  /// The reason why the draft's operands do not lie where its kernel needs them; empty if they do.
  [[nodiscard]] std::string refuses_alignment(const TileDraft& draft) const;
  /// A step of one node that is not a tile program (stands_alone). Returns the reason if there is no kernel for it,
  /// else an empty string.
  std::string step_of_one(ir::NodeId node);
  void norm(ir::NodeId node);
  void rope_table(ir::NodeId node);
  /// A router's configuration and the pointers of its arguments.
  struct Router {
    ConfigText config;
    std::vector<PointerArgument> pointers;
  };
  [[nodiscard]] Router router_of(ir::NodeId node, const PointerArgument& logits, std::int64_t row_floats) const;
  void launch_router(ir::NodeId node, const Router& router);
  void interleaved_split(ir::NodeId node);
  void arrange(ir::NodeId node);
  void self_attention(ir::NodeId node);
  /// The keys of sparse attention. The same as step_of_one.
  std::string select_keys(ir::NodeId node);
  void row_function(ir::NodeId node);
  /// nodes: the convolution, and optionally the activation of its result.
  void short_conv(std::span<const ir::NodeId> nodes);
  void delta_rule(ir::NodeId node);
  void selective_scan(ir::NodeId node);
  void rwkv7(ir::NodeId node);
  /// Rows of a head's state, its columns, and how many heads there are.
  struct StateShape {
    std::int64_t heads = 0, rows = 0, columns = 0;
  };
  /// The launch of a StateUpdate (kernels/gpu/recurrent.h). params: the members of the rule's parameters P; `vectors`
  /// and `per_column`: what the rule stages of a token; arguments: the members of the rule's Args.
  void state_update(ir::NodeId node, std::string_view rule, const ConfigText& params, const StateShape& shape,
                    std::int64_t vectors, std::int64_t per_column, std::vector<PointerArgument> arguments);
  /// The launch of a StateTiles (kernels/gpu/recurrent_tiles.h), and whether a step takes it. The same. row_lanes:
  /// lanes that a block needs for each row of the state, if rows have their own decays.
  void state_tiles(ir::NodeId node, std::string_view rule, const ConfigText& params, const StateShape& shape,
                   std::vector<PointerArgument> arguments, std::int64_t row_lanes = 0);
  /// What both have in common. kind: what their kernels' names have between the operation and the shape; text: the
  /// kernel, its threads and what else its configuration has.
  void launch_state(ir::NodeId node, std::string_view kind, std::string_view rule, const ConfigText& params,
                    const StateShape& shape, std::int64_t block_columns, KernelText text,
                    std::vector<PointerArgument> arguments);
  /// vectors: operands with rows of shape.rows floats for each head; rows_max: rows of a state.
  [[nodiscard]] bool takes_state_tiles(const StateShape& shape, std::initializer_list<ir::Value> vectors,
                                       std::int64_t rows_max) const;
  [[nodiscard]] std::vector<PointerArgument> state_arguments(ir::NodeId node) const;
  [[nodiscard]] std::int64_t slot_floats(ir::NodeId node) const;

  /// Completes the choice: the launch, the kernel's source (its name begins with `stem`) and the operands.
  void launch(std::string_view stem, const KernelText& text, std::span<const PointerArgument> arguments);
  [[nodiscard]] plan::Operand operand_of(const PointerArgument& argument) const;
  [[nodiscard]] std::int64_t kv_group_of(ir::NodeId node) const;
  [[nodiscard]] std::int64_t kv_layer_of(ir::NodeId node) const;
  [[nodiscard]] RowCount rows_of_step(const ir::Dim& rows) const;
  [[nodiscard]] std::int64_t row_floats(ir::Value value) const { return binding_.rows.row_elements(value); }
  /// How the variant stores a value.
  [[nodiscard]] passes::StoredForm stored_form(ir::Value value) const {
    const auto found = binding_.stored.find(value);
    return found != binding_.stored.end() ? found->second : passes::StoredForm{.dtype = graph_.type(value).dtype};
  }
  [[nodiscard]] DType stored_type(ir::Value value) const { return stored_form(value).dtype; }
  [[nodiscard]] std::string weight_type(ir::Value weight) const;
  static PointerArgument input(ir::InputKind kind);
  static PointerArgument input(plan::GpuInput kind);
  /// Reserves u32 counters that are zero between steps.
  PointerArgument counters(std::int64_t count);

  const ir::Graph& graph_;
  const passes::Binding& binding_;
  const GpuTarget& target_;
  const Tuning& tuning_;
  const AttentionChoice& attention_;
  const KvFormat& kv_;
  bool deterministic_;
  StepOperands operands_;
  passes::Choice out_;
  /// The name and the text of the kernel that was launched last.
  std::string stem_;
  KernelText text_;
};

/// Where the next thing goes behind so many bytes of scratch.
std::int64_t behind(std::int64_t scratch_bytes);

/// True if an attention has the operand `sinks`.
bool has_sinks(const ir::Graph& graph, ir::NodeId attention);

/// What the kernels of a step of tile operations do.
struct StepDraft {
  std::optional<RoutedDraft> routed;   ///< a matmul and the router of its rows; nothing else is set then
  TileDraft draft;                     ///< the whole group
  std::optional<RowNormDraft> halves;  ///< the group, if it has operations on whole rows of its matmul
  EpilogueShape shape;                 ///< what the epilogue of any other group asks of its block
};
/// The draft of a group, in topological order, or the reason why GPUs do not support it.
std::expected<StepDraft, std::string> draft_step(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                                 const KvFormat& kv, const DraftRules& rules = kGpuDraftRules);

/// True if `next` gathers rows of what the matmul of `step` makes, and a matmul of one token can go on with all that
/// follows there.
bool gathers_only_row(const ir::Graph& graph, std::span<const ir::NodeId> step, std::span<const ir::NodeId> next,
                      const KvFormat& kv);

}  // namespace forge::codegen

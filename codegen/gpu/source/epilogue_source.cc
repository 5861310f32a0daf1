#include "codegen/gpu/source/epilogue_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "codegen/gpu/source/draft_chains.h"
#include "codegen/gpu/source/kernel_text.h"
#include "codegen/gpu/source/weight_text.h"
#include "codegen/gpu/tile_sizes.h"
#include "codegen/step_operands.h"
#include "passes/passes.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

using ir::InputKind;
using plan::TileOpKind;
using Kind = PointerArgument::Kind;

/// Writes the bodies of load_older(), load() and run() side by side, section by section; sections are branches on row0,
/// or on the column where blocks may cross a border. Example, for the operations inv_rms, rope and store:
///
///   load:  const int d = n % 128;
///          o[0] = gpu::load(a.p0 + ...);        // cosine
///          o[1] = gpu::load(a.p0 + ... + 1);    // sine
///   run:   const auto pre = [&](int c, bool other) { float v = in(c); v *= factor; return v; };
///          float v = rope(pre(n, false), pre(other, true), o[0], o[1], second);
///          store(a.p1 + ..., v, real);
///
/// Operations before a combining one (RoPE, GLU) are applied to two columns, so they become a lambda of the column,
/// `pre`. Operands that are older than the step are loaded by load_older(), which kernels call before they wait.
class Generator {
 public:
  Generator(const ir::Graph& graph, const TileDraft& draft, const EpilogueContext& context)
      : graph_(graph), draft_(draft), context_(context) {}

  EpilogueSource run(std::string_view name) {
    const bool branches = draft_.sections.size() > 1;
    for (std::size_t i = 0; i < draft_.sections.size(); ++i) {
      const auto& section = draft_.sections[i];
      const bool last = i + 1 == draft_.sections.size();
      if (!last && section.ops == draft_.sections[i + 1].ops) continue;  // heads of a batched matmul
      if (branches && !last) {
        const auto branch = fmt::format("    if ({} < {}) {{\n", is_free_border(draft_, i) ? "n" : "row0", section.end);
        for (auto* text : bodies()) *text += branch;
      } else {
        for (auto* text : bodies()) *text += "    {\n";
      }
      generate_section(section);
      const auto part = branches ? fmt::format("      FORGE_PART({});\n", i) : std::string();
      for (auto* text : bodies()) *text += part + "      return;\n    }\n";
    }
    return finish(name);
  }

 private:
  void generate_section(const DraftSection& section) {
    operands_ = 0;
    const auto chains = chains_of(section);
    for (const auto ops : chains) {
      const bool several = chains.size() > 1;
      for (auto* text : bodies())
        if (several) *text += "      {\n";
      generate_chain(ops, several);
      for (auto* text : bodies())
        if (several) *text += "      }\n";
    }
    most_operands_ = std::max(most_operands_, operands_);
  }
  /// one_of_several: the chain's first operation starts from the source, so it keeps and takes nothing.
  void generate_chain(Chain ops, bool one_of_several) {
    std::vector<DraftOp> own(ops.begin(), ops.end());
    if (one_of_several) own.front().keeps = own.front().from = -1;
    const auto combine = std::ranges::find_if(own, [](const auto& op) { return is_combine(op.kind); });
    const auto norms = norms_of(own);
    if (!norms.empty() && is_staged(own, norms.back())) {
      generate_stages(own, norms);
    } else if (combine == own.end()) {
      run_ += "      float v = in(n);\n";
      for (const auto& op : own) generate(op, Place::kEarly);
    } else {
      run_ += "      const auto pre = [&](int c, [[maybe_unused]] bool other) {\n        float v = in(c);\n";
      rope_ = combine->kind == TileOpKind::kRope ? &*combine : nullptr;
      for (auto op = own.begin(); op != combine; ++op) generate(*op, Place::kBeforeCombine);
      rope_ = nullptr;
      run_ += "        return v;\n      };\n";
      generate_combine(*combine);
      for (auto op = combine + 1; op != own.end(); ++op) generate(*op, Place::kEarly);
    }
  }

  /// The operations up to the last norm become before<I>, those from it on the body of run().
  void generate_stages(Chain ops, std::span<const std::size_t> norms) {
    const auto body = std::exchange(run_, {});
    std::size_t next = 0;
    for (std::size_t i = 0; i < norms.size(); ++i) {
      run_ += fmt::format("    if constexpr (I == {}) {{\n", i);
      for (; next < norms[i]; ++next) generate(ops[next], Place::kBeforeCombine);
      run_ += "    }\n";
    }
    stages_ = fmt::format(
        "  static constexpr bool kStaged = true;\n  static constexpr int kNorms = {};\n  template <int I>\n"
        "  FORGE_DEVICE static float before([[maybe_unused]] const Args& a, [[maybe_unused]] int t, [[maybe_unused]] "
        "int "
        "c,\n                                   float v, [[maybe_unused]] float factor) {{\n{}    return v;\n  }}\n",
        norms.size(), run_);
    run_ = body + "      float v = in(n);\n";
    for (; next < ops.size(); ++next) generate(ops[next], Place::kEarly);
  }

  /// kEarly: the operation applies to the lane's own column n, so its operands can be loaded early, in load().
  /// kBeforeCombine: it is inside the lambda `pre`, or in before(), and applies to column c.
  enum class Place : std::uint8_t { kEarly, kBeforeCombine };

  /// The member of Args for this pointer, as "a.pI"; added if it is new.
  std::string pointer(std::string_view type, PointerArgument argument) {
    for (std::size_t i = 0; i < pointers_.size(); ++i)
      if (pointers_[i].kind == argument.kind && pointers_[i].value == argument.value &&
          pointers_[i].node == argument.node && pointers_[i].input == argument.input && types_[i] == type)
        return fmt::format("a.p{}", i);
    pointers_.push_back(argument);
    types_.emplace_back(type);
    return fmt::format("a.p{}", pointers_.size() - 1);
  }
  std::string value_pointer(std::string_view type, ir::Value value) {
    return pointer(type, {.kind = Kind::kValue, .value = value});
  }
  std::string input_pointer(InputKind kind) {
    return pointer("const i32*", {.kind = Kind::kInput, .input = static_cast<std::int64_t>(kind)});
  }

  std::array<std::string*, 3> bodies() { return {&older_, &load_, &run_}; }
  /// An expression for a float in memory: o[i], loaded early by load(), or by load_older() if it is older than the
  /// step; or a load in place for columns of other lanes.
  std::string operand(Place place, const std::string& address, bool older = false) {
    if (place == Place::kBeforeCombine) return fmt::format("gpu::load({})", address);
    (older ? older_ : load_) += fmt::format("      o[{}] = gpu::load({});\n", operands_, address);
    loads_older_ |= older;
    return fmt::format("o[{}]", operands_++);
  }
  [[nodiscard]] bool is_older(ir::Value value) const { return !passes::runs_in_step(graph_, value.node); }
  /// The weight of a norm. Before RoPE both columns of a pair are loaded early.
  std::string norm_weight(const DraftOp& op, Place place, const std::string& col, std::int64_t dim) {
    const auto pointer = value_pointer("const float*", op.operand);
    if (place == Place::kEarly || rope_ == nullptr || !is_older(op.operand))
      return operand(place, fmt::format("{} + {} % {}", pointer, col, dim), is_older(op.operand));
    older_ += "      {\n" + rope_columns(*rope_);
    const auto load = [&](std::string_view column) {
      older_ +=
          fmt::format("      o[{}] = gpu::load({} + ({} - {}) % {});\n", operands_++, pointer, column, op.origin, dim);
    };
    load("n");
    load("other");
    older_ += "      }\n";
    loads_older_ = true;
    return fmt::format("(other ? o[{}] : o[{}])", operands_ - 1, operands_ - 2);
  }
  /// Whether RoPE turns column d of its head.
  static std::string is_turned(const ir::RopeAttrs& rope) {
    return rope.rotary_dims == rope.head_dim ? "true" : fmt::format("d < {}", rope.rotary_dims);
  }
  /// RoPE's column d of its head, whether it is `turned`, whether it is the `second` of its pair, and the `other`.
  static std::string rope_columns(const ir::RopeAttrs& rope, std::int64_t origin) {
    const auto half = rope.rotary_dims / 2;
    const bool pairs = rope.mode == ir::RopeMode::kPairs;
    return fmt::format(
        "      const int d = {} % {};\n      const bool turned = {}, second = {};\n"
        "      const int other = turned ? (second ? n - {} : n + {}) : n;\n",
        column(Place::kEarly, origin), rope.head_dim, is_turned(rope),
        pairs ? std::string("d % 2 != 0") : fmt::format("d >= {}", half), pairs ? 1 : half, pairs ? 1 : half);
  }
  [[nodiscard]] std::string rope_columns(const DraftOp& op) const {
    return rope_columns(graph_.attrs_as<ir::RopeAttrs>(op.node), op.origin);
  }

  /// The column relative to `origin`, where the operand's column 0 lies.
  static std::string column(Place place, std::int64_t origin) {
    const char* name = place == Place::kBeforeCombine ? "c" : "n";
    return origin == 0 ? std::string(name) : fmt::format("({} - {})", name, origin);
  }
  /// The row of a value. With experts the source's rows are slots; a value without slots has one row per token.
  [[nodiscard]] std::string row_of(ir::Value value) const {
    const bool shared = draft_.slots > 1 && graph_.type(value).shape.size() < 3;
    return shared ? fmt::format("(t / {})", draft_.slots) : std::string("t");
  }
  [[nodiscard]] std::int64_t row_floats(ir::Value value) const {
    return context_.row_floats(value) / (graph_.type(value).shape.size() < 3 ? 1 : draft_.slots);
  }
  /// Whether all rows of a value together take less than 4 GiB.
  [[nodiscard]] bool is_small(ir::Value value) const {
    return context_.rows && context_.rows(value) * context_.row_floats(value) * kFloatBytes < std::int64_t{1} << 32;
  }
  /// The address of a column of a row.
  static std::string element(std::string_view pointer, std::string_view row, std::int64_t floats, std::string_view col,
                             bool small) {
    if (small) return fmt::format("gpu::element({}, static_cast<u32>({} * {} + {}))", pointer, row, floats, col);
    return fmt::format("{} + static_cast<u64>({}) * {} + {}", pointer, row, floats, col);
  }
  std::string row_element(std::string_view type, ir::Value value, std::string_view col) {
    return element(value_pointer(type, value), row_of(value), row_floats(value), col, is_small(value));
  }

  /// A call of the elementwise function that a node computes (kernels/gpu/elementwise.h).
  [[nodiscard]] std::string call(ir::NodeId node, std::string_view x, std::string_view y = {}) const {
    const auto called = *ir::function_call(graph_.op(node), graph_.attrs(node));
    const auto& def = elementwise::function_def(called.function);
    const bool product = !y.empty() && def.form == elementwise::Form::kGate;
    auto text = fmt::format("{}({}", def.name, x);
    if (!y.empty() && !product) text += fmt::format(", {}", y);
    for (std::size_t i = 0; i < def.parameter_count; ++i)
      text += fmt::format(", {}", float_literal(called.parameters[i]));
    return product ? fmt::format("{}) * {}", text, y) : text + ')';
  }

  static std::string inverse_rms(const ir::NormAttrs& norm) {
    return fmt::format("inverse_sqrt_of(fma_of(sum, {}, {}))", float_literal(1.0F / static_cast<float>(norm.dim)),
                       float_literal(norm.eps));
  }

  void line(Place place, std::string_view text) {
    run_ += fmt::format("{}{}\n", place == Place::kBeforeCombine ? "        " : "      ", text);
  }

  void generate(const DraftOp& op, Place place) {
    const auto col = column(place, op.origin);
    if (op.from >= 0) line(place, fmt::format("v = kept{};", op.from));
    if (op.keeps >= 0) line(place, fmt::format("const float kept{} = v;", op.keeps));
    switch (op.kind) {
      case TileOpKind::kLoad:
        break;
      case TileOpKind::kInvRms: {
        const auto& norm = graph_.attrs_as<ir::NormAttrs>(op.node);
        parts_ = row_floats(op.operand);
        squares_ = value_pointer("const float*", op.operand);
        squares_value_ = op.operand;
        inv_rms_ = inverse_rms(norm);
        line(place, "v *= factor;");
        break;
      }
      case TileOpKind::kRmsNorm: {
        const auto& norm = graph_.attrs_as<ir::NormAttrs>(op.node);
        own_norm_ = norm.dim;
        inv_rms_ = inverse_rms(norm);
        line(place, fmt::format("v = v * factor * {};", norm_weight(op, place, col, norm.dim)));
        break;
      }
      case TileOpKind::kUnary:
        line(place, fmt::format("v = {};", call(op.node, "v")));
        break;
      case TileOpKind::kBinary: {
        const auto& type = graph_.type(op.operand);
        const auto other =
            operand(place,
                    is_one_number(type)      ? value_pointer("const float*", op.operand)
                    : type.shape.size() == 1 ? fmt::format("{} + {}", value_pointer("const float*", op.operand), col)
                                             : row_element("const float*", op.operand, col),
                    is_older(op.operand) && type.shape.size() == 1);
        line(place, fmt::format("v = {};", op.gated ? call(op.node, other, "v") : call(op.node, "v", other)));
        break;
      }
      case TileOpKind::kAddExpertVector: {
        const auto experts = value_pointer("const i32*", graph_.operand(op.node, 2));
        const auto other = operand(place, fmt::format("{} + static_cast<u64>(gpu::load({} + t)) * {} + {}",
                                                      value_pointer("const float*", op.operand), experts,
                                                      graph_.type(op.operand).shape[1].value, col));
        line(place, fmt::format("v += {};", other));
        break;
      }
      case TileOpKind::kHadamard:
        line(place, "v = hadamard(v);");
        break;
      case TileOpKind::kScaleExpert: {
        const auto experts = value_pointer("const i32*", graph_.operand(op.node, 2));
        const auto factors = value_pointer("const float*", op.operand);
        line(place, fmt::format("v *= {};", operand(place, fmt::format("{} + gpu::load({} + t)", factors, experts))));
        break;
      }
      default:
        generate_sink(op, place, col);
    }
  }

  [[nodiscard]] passes::StoredForm stored_form(ir::Value value) const {
    return context_.stored_form ? context_.stored_form(value) : passes::StoredForm{.dtype = graph_.type(value).dtype};
  }
  [[nodiscard]] DType stored_type(ir::Value value) const { return stored_form(value).dtype; }
  /// Rows that matmuls read.
  void generate_activation(const DraftOp& op, Place place, const std::string& col) {
    if (context_.rows && !is_small(op.operand))
      throw Error(ErrorCode::kUsage,
                  fmt::format("the rows of {} columns of a step take 4 GiB or more", graph_.type(op.operand).cols()),
                  "ask for fewer tokens in a step");
    line(place, fmt::format("store_activation<{}, {}>({}, t, {}, v, real);", graph_.type(op.operand).cols(),
                            row_format(stored_type(op.operand)), value_pointer("u8*", op.operand), col));
  }

  /// Sinks: their 16 lanes write 16 results.
  void generate_sink(const DraftOp& op, Place place, const std::string& col) {
    switch (op.kind) {
      case TileOpKind::kStore: {
        if (op.operand.node != ir::kNoNode && op.operand == context_.kept) {
          line(place, "in.keep(v);");
          break;
        }
        const bool scratch = op.operand.node == ir::kNoNode;  // rows of the step's scratch (row_norm.h)
        if (!scratch && stored_type(op.operand) != DType::kF32) {
          generate_activation(op, place, col);
          break;
        }
        line(place, fmt::format("store({}, v, real);", scratch ? element(pointer("float*", {.kind = Kind::kScratch}),
                                                                         "t", draft_.cols, col, false)
                                                               : row_element("float*", op.operand, col)));
        break;
      }
      case TileOpKind::kSumSquares:
        line(place,
             fmt::format("store_squares({}, v, real);", row_element("float*", op.operand, col + " / kQuantBlock")));
        if (stored_form(op.operand).total && squares_of(draft_).size() == 1) {
          squares_out_ = value_pointer("float*", op.operand);
          parts_out_ = row_floats(op.operand);
        }
        break;
      case TileOpKind::kQuantize:
        generate_activation(op, place, col);
        break;
      case TileOpKind::kStoreK:
      case TileOpKind::kStoreV: {
        const bool keys = op.kind == TileOpKind::kStoreK;
        const auto& kv = kv_state_of(graph_, graph_.operand(op.node, 0));
        const auto pool = context_.kv->pool(kv.kv_heads, keys ? kv.head_dim : value_dim_of(kv));
        const auto position = operands_++, block = operands_++;
        loads_older_ = true;
        older_ += fmt::format("      {}::load_slot({}, {}, {}, {}, t, o[{}], o[{}]);\n", pool,
                              input_pointer(InputKind::kPositions), input_pointer(InputKind::kSequence),
                              pointer("const i32*", {.kind = Kind::kBlockTable, .node = op.node}),
                              context_.table_blocks, position, block);
        line(place, fmt::format("{0}::store({1}, {0}::slot_of(o[{2}], o[{3}]), {4}, v, real);", pool,
                                pointer("u16*", {.kind = keys ? Kind::kKeys : Kind::kValues, .node = op.node}),
                                position, block, col));
        break;
      }
      default:
        throw Error(ErrorCode::kInternal, "a draft has a source where an epilogue operation is expected");
    }
  }

  /// A GLU reads column `gate` and the one 16 further on; RoPE reads the column and its partner `other`. Columns that
  /// RoPE does not rotate get cosine 1 and sine 0.
  void generate_combine(const DraftOp& op) {
    if (op.kind == TileOpKind::kPairs) {
      run_ += fmt::format("      const int gate = n / {0} * {1} + n % {0};\n", kGluUnit, 2 * kGluUnit);
      run_ += fmt::format("      float v = {};\n",
                          call(op.node, "pre(gate, false)", fmt::format("pre(gate + {}, true)", kGluUnit)));
      return;
    }
    const auto& rope = graph_.attrs_as<ir::RopeAttrs>(op.node);
    const auto half = rope.rotary_dims / 2;
    const auto angle = element(value_pointer("const float*", op.operand), "t", 2 * half,
                               rope.mode == ir::RopeMode::kPairs ? "d / 2 * 2" : fmt::format("d % {} * 2", half),
                               is_small(op.operand));
    const auto turned = is_turned(rope);
    load_ += fmt::format("      const int d = {} % {};\n", column(Place::kEarly, op.origin), rope.head_dim);
    load_ += fmt::format("      o[{}] = {} ? gpu::load({}) : 1.0f;\n", operands_, turned, angle);
    load_ += fmt::format("      o[{}] = {} ? gpu::load({} + 1) : 0.0f;\n", operands_ + 1, turned, angle);
    run_ += rope_columns(op);
    run_ += fmt::format("      float v = rope(pre(n, false), pre(other, true), o[{}], o[{}], second && turned);\n",
                        operands_, operands_ + 1);
    operands_ += 2;
  }

  /// Puts the struct together: Args with the pointers, constants, and the functions that are needed.
  EpilogueSource finish(std::string_view name) {
    std::string text = fmt::format("struct {} {{\n  struct Args {{\n", name);
    for (std::size_t i = 0; i < pointers_.size(); ++i) text += fmt::format("    {} p{};\n", types_[i], i);
    const bool halved =
        std::ranges::any_of(draft_.sections[0].ops, [](const auto& op) { return op.kind == TileOpKind::kPairs; });
    text += fmt::format("  }};\n  static constexpr int kIn = {}, kOperands = {}, kParts = {};\n",
                        halved ? 2 * kGluUnit : kResultColumns, most_operands_, parts_);
    if (parts_ > 0 && draft_.slots > 1) text += fmt::format("  static constexpr int kSlots = {};\n", draft_.slots);
    if (own_norm_ > 0) text += fmt::format("  static constexpr int kOwnNorm = {};\n", own_norm_);
    if (parts_out_ > 0)
      text += fmt::format(
          "  static constexpr int kSquaresOut = {};\n"
          "  FORGE_DEVICE static float* squares_out(const Args& a) {{ return {}; }}\n",
          parts_out_, squares_out_);
    text += stages_;
    if (parts_ > 0)
      text += fmt::format("  FORGE_DEVICE static const float* squares(const Args& a) {{ return {}; }}\n", squares_);
    if (parts_ > 0 || own_norm_ > 0)
      text += fmt::format("  FORGE_DEVICE static float inv_rms(float sum) {{ return {}; }}\n", inv_rms_);
    const auto operands = std::max<std::int64_t>(most_operands_, 1);
    const auto loader = [&](std::string_view function, std::string_view body) {
      text += fmt::format(
          "  FORGE_DEVICE static void {}([[maybe_unused]] const Args& a, [[maybe_unused]] int t, [[maybe_unused]] "
          "int n,\n"
          "                                [[maybe_unused]] int row0, [[maybe_unused]] float (&o)[{}]) {{\n{}  }}\n",
          function, operands, body);
    };
    if (most_operands_ > 0) loader("load", load_);
    if (loads_older_) {
      text += "  static constexpr bool kOlder = true;\n";
      loader("load_older", older_);
    }
    text += fmt::format(
        "  template <class In>\n"
        "  FORGE_DEVICE static void run([[maybe_unused]] const Args& a, [[maybe_unused]] int t, [[maybe_unused]] int "
        "n,\n"
        "                               [[maybe_unused]] int row0, [[maybe_unused]] bool real,\n"
        "                               [[maybe_unused]] float factor, [[maybe_unused]] const float (&o)[{}], In&& in) "
        "{{\n{}  }}\n}};\n",
        operands, run_);
    return {std::move(text), std::move(pointers_), squares_value_, parts_out_ > 0};
  }

  const ir::Graph& graph_;
  const TileDraft& draft_;
  const EpilogueContext& context_;
  std::string older_, load_, run_, squares_, squares_out_, inv_rms_, stages_;
  const DraftOp* rope_ = nullptr;  ///< the RoPE behind the operations that are being generated
  bool loads_older_ = false;
  ir::Value squares_value_;
  std::vector<PointerArgument> pointers_;
  std::vector<std::string> types_;
  std::int64_t operands_ = 0, most_operands_ = 0, parts_ = 0, parts_out_ = 0, own_norm_ = 0;
};

}  // namespace

EpilogueSource generate_epilogue(const ir::Graph& graph, const TileDraft& draft, const EpilogueContext& context,
                                 std::string_view name) {
  return Generator(graph, draft, context).run(name);
}

}  // namespace forge::codegen

// Elementwise ops: one definition for each row of the table in kernels/elementwise/elementwise.h; glu and activate,
// whose function is an attribute; and split, which distributes the columns of a value to several results.

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/ops.h"

namespace forge::ir::ops {
namespace {

using elementwise::Function;
using elementwise::FunctionDef;
using elementwise::Parameters;

/// The scalar type that the formulas of kernels/elementwise are instantiated with here: a float whose functions come
/// from the C library. Back-ends instantiate the same formulas with their own vector or device types.
struct Number {
  float value;
  explicit Number(float x) : value(x) {}
  friend Number operator+(Number a, Number b) { return Number(a.value + b.value); }
  friend Number operator-(Number a, Number b) { return Number(a.value - b.value); }
  friend Number operator*(Number a, Number b) { return Number(a.value * b.value); }
  friend Number operator/(Number a, Number b) { return Number(a.value / b.value); }
  friend Number operator-(Number a) { return Number(-a.value); }
  friend Number fma(Number a, Number b, Number c) { return Number(std::fma(a.value, b.value, c.value)); }
  friend Number min(Number a, Number b) { return a.value < b.value ? a : b; }
  friend Number max(Number a, Number b) { return a.value > b.value ? a : b; }
  friend Number abs(Number a) { return Number(std::fabs(a.value)); }
  friend Number exp(Number x) { return Number(std::exp(x.value)); }
  friend Number log1p(Number x) { return Number(std::log1p(x.value)); }
  friend Number expm1(Number x) { return Number(std::expm1(x.value)); }
  friend Number scaled_tanh(Number x, Number s) { return Number(s.value * std::tanh(x.value / s.value)); }
  friend Number select_lt(Number a, Number b, Number yes, Number no) { return a.value < b.value ? yes : no; }
};

// ---- functions selected at run time ----

/// The scalar reference of a function; the pointer for the other number of operands is null.
struct Reference {
  float (*unary)(float x, const Parameters& parameters);
  float (*binary)(float x, float y, const Parameters& parameters);
};

std::array<Number, elementwise::kParametersMax> as_numbers(const Parameters& p) {
  return {Number(p[0]), Number(p[1]), Number(p[2]), Number(p[3])};
}

/// Instantiates the formula of F for Number.
template <Function F>
consteval Reference reference_of() {
  constexpr elementwise::Form kForm = elementwise::function_def(F).form;
  Reference out{};
  if constexpr (elementwise::is_unary(kForm))
    out.unary = [](float x, const Parameters& parameters) {
      return elementwise::unary<F>(Number(x), as_numbers(parameters).data(), elementwise::ParameterIndices<F>()).value;
    };
  if constexpr (elementwise::is_binary(kForm))
    out.binary = [](float x, float y, const Parameters& parameters) {
      return elementwise::binary<F>(Number(x), Number(y), as_numbers(parameters).data(),
                                    elementwise::ParameterIndices<F>())
          .value;
    };
  return out;
}

const Reference& reference(Function function) {
#define FORGE_REFERENCE(name, Name, ...) reference_of<Function::k##Name>(),
  static constexpr Reference kReferences[] = {FORGE_ELEMENTWISE_FUNCTIONS(FORGE_REFERENCE, FORGE_REFERENCE)};
#undef FORGE_REFERENCE
  return kReferences[static_cast<std::size_t>(function)];
}

/// Visitor that collects the float members of an op's attributes, in their order.
struct ParameterReader {
  Parameters values{};
  std::size_t count = 0;
  template <class T>
  void operator()(std::string_view, const T& value) {
    if constexpr (std::is_same_v<T, float>) values[count++] = value;
  }
};

FunctionCall call_of(Op op, const Attrs& attrs) {
  return *function_call(op, attrs);
}

// ---- shape rules ----

void check_parameters(std::string_view op, const FunctionCall& call) {
  const FunctionDef& def = elementwise::function_def(call.function);
  for (std::size_t i = 0; i < def.parameter_count; ++i) {
    const auto& [name, range] = def.parameters[i];
    if (!elementwise::in_range(range, call.parameters[i]))
      refuse_attr(op, name, fmt::to_string(call.parameters[i]),
                  range == elementwise::Range::kPositive ? "a positive number" : "finite");
  }
  for (std::size_t i = def.parameter_count; i < call.parameters.size(); ++i)
    if (call.parameters[i] != 0)
      refuse_attr(op, "parameters", fmt::to_string(call.parameters[i]),
                  fmt::format("0: {} has {} parameters", def.name, def.parameter_count));
}

/// Unary ops take x of any rank; binary ops take a, and b of the same type, a vector along a's last dimension, or one
/// number [1].
template <Op op>
std::vector<TensorType> infer_function(const Attrs& attrs, Types operands) {
  const std::string_view name = op_def(op).name;
  check_parameters(name, call_of(op, attrs));
  const TensorType& a = operands[0];
  require_f32(name, operands, 0, std::max<std::size_t>(a.shape.size(), 1));
  const TensorType vector{DType::kF32, {a.cols()}}, one{DType::kF32, {1}};
  if (operands.size() > 1 && operands[1] != a && operands[1] != vector && operands[1] != one)
    refuse_operand(name, 1, operands[1],
                   fmt::format("{}, {} or {}, as operand 0 is {}", a.text(), vector.text(), one.text(), a.text()));
  return {a};
}

std::vector<TensorType> infer_glu(const Attrs& attrs, Types operands) {
  const FunctionCall call = call_of(Op::kGlu, attrs);
  if (const auto& def = elementwise::function_def(call.function); !elementwise::is_binary(def.form))
    refuse_attr("glu", "activation", std::string(def.name), "a function of gate and up");
  check_parameters("glu", call);
  require_rows("glu", operands, 0);
  if (operands[1] != operands[0]) refuse_operand("glu", 1, operands[1], operands[0].text() + ", like operand 0");
  return {operands[0]};
}

std::vector<TensorType> infer_activate(const Attrs& attrs, Types operands) {
  const FunctionCall call = call_of(Op::kActivate, attrs);
  if (const auto& def = elementwise::function_def(call.function); !elementwise::is_unary(def.form))
    refuse_attr("activate", "activation", std::string(def.name), "a function of one value");
  check_parameters("activate", call);
  require_rows("activate", operands, 0);
  return {operands[0]};
}

std::vector<TensorType> infer_split(const Attrs& attrs, Types operands) {
  const auto& parts = std::get<PartsAttrs>(attrs);
  require_rows("split", operands, 0);
  const std::int64_t total = parts_total("split", parts, parts.sizes.size());
  if (total != operands[0].cols())
    refuse_operand("split", 0, operands[0], fmt::format("as wide as the parts together, {}", total));
  std::vector<TensorType> results;
  for (const std::int64_t size : parts.sizes) results.emplace_back(operands[0]).shape.back() = size;
  return results;
}

/// A vector operand of an op on a matrix is a weight (a bias or the weight of a norm), so its bytes are weight bytes.
template <Op op>
Cost function_cost(const Attrs& attrs, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands, results, bounds, elementwise::function_def(call_of(op, attrs).function).flops);
  if (operands.size() > 1 && operands[1].shape.size() < operands[0].shape.size()) {
    cost.weight_bytes = operands[1].bytes(bounds);
    cost.activation_bytes -= cost.weight_bytes;
  }
  return cost;
}
Cost split_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return streaming_cost(operands, results, bounds, 0);
}

template <Op op>
void run_function(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const FunctionCall call = call_of(op, attrs);
  const Reference& f = reference(call.function);
  const auto& a = operands[0]->f32;
  auto& out = results[0].f32;
  if (operands.size() == 1) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = f.unary(a[i], call.parameters);
    return;
  }
  const auto& b = operands[1]->f32;  // a vector repeats along the rows, one number everywhere
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = f.binary(a[i], b[i % b.size()], call.parameters);
}

void run_split(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& parts = std::get<PartsAttrs>(attrs);
  const auto offsets = part_offsets(parts);
  const Tensor& x = *operands[0];
  for (std::size_t part = 0; part < results.size(); ++part) {
    Tensor& out = results[part];
    for (std::int64_t row = 0; row < out.rows(); ++row)
      for (std::int64_t j = 0; j < out.cols(); ++j)
        out.f32[row * out.cols() + j] = x.f32[row * x.cols() + part_position(parts, offsets, part, j)];
  }
}

/// Completes a definition with the properties that all elementwise ops have.
constexpr OpDef elementwise_def(OpDef def) {
  def.elementwise = true;
  def.in_place_operand = 0;
  def.operands_max = def.operands_min;
  return def;
}

/// Index of the op's attributes in the variant Attrs. An op without parameters has NoAttrs: its own struct A is only
/// declared.
template <Function F, class A>
consteval std::size_t attrs_index_of() {
  if constexpr (elementwise::function_def(F).parameter_count == 0)
    return attrs_index<NoAttrs>();
  else
    return attrs_index<A>();
}

}  // namespace

std::span<const OpDef> elementwise_defs() {
#define FORGE_DEFINITION(name_, Name, ...)                                                                           \
  elementwise_def({.op = Op::k##Name,                                                                                \
                   .name = #name_,                                                                                   \
                   .operands_min = elementwise::is_unary(elementwise::function_def(Function::k##Name).form) ? 1 : 2, \
                   .attrs_index = attrs_index_of<Function::k##Name, Name##Attrs>(),                                  \
                   .function = Function::k##Name,                                                                    \
                   .infer = infer_function<Op::k##Name>,                                                             \
                   .cost = function_cost<Op::k##Name>,                                                               \
                   .reference = run_function<Op::k##Name>}),
  static constexpr std::array kDefs{
      FORGE_ELEMENTWISE_FUNCTIONS(FORGE_DEFINITION, FORGE_NO_ROW)  //
      elementwise_def({.op = Op::kGlu,
                       .name = "glu",
                       .operands_min = 2,
                       .attrs_index = attrs_index<GluAttrs>(),
                       .infer = infer_glu,
                       .cost = function_cost<Op::kGlu>,
                       .reference = run_function<Op::kGlu>}),
      elementwise_def({.op = Op::kActivate,
                       .name = "activate",
                       .operands_min = 1,
                       .attrs_index = attrs_index<GluAttrs>(),
                       .infer = infer_activate,
                       .cost = function_cost<Op::kActivate>,
                       .reference = run_function<Op::kActivate>}),
      OpDef{.op = Op::kSplit,
            .name = "split",
            .operands_min = 1,
            .operands_max = 1,
            .attrs_index = attrs_index<PartsAttrs>(),
            .infer = infer_split,
            .cost = split_cost,
            .reference = run_split},
  };
#undef FORGE_DEFINITION
  return kDefs;
}

}  // namespace forge::ir::ops

namespace forge::ir {

elementwise::Function function_of(Activation activation) {
  using elementwise::Function;
#define FORGE_ACTIVATION_FUNCTION(name, Name, ...) Function::k##Name,
  static constexpr Function kFunctions[] = {FORGE_ELEMENTWISE_FUNCTIONS(FORGE_NO_ROW, FORGE_ACTIVATION_FUNCTION)};
#undef FORGE_ACTIVATION_FUNCTION
  return kFunctions[static_cast<std::size_t>(activation)];
}

std::optional<FunctionCall> function_call(Op op, const Attrs& attrs) {
  if (op == Op::kGlu || op == Op::kActivate) {
    const auto& glu = std::get<GluAttrs>(attrs);
    return FunctionCall{function_of(glu.activation), glu.parameters};
  }
  const auto function = op_def(op).function;
  if (!function) return std::nullopt;
  ops::ParameterReader reader;
  std::visit([&](const auto& fields) { fields.fields(reader); }, attrs);
  return FunctionCall{*function, reader.values};
}

}  // namespace forge::ir

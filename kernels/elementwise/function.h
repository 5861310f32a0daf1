#pragma once
// The rows of elementwise.h as host data: an enum of all functions, their names, forms and parameters, and the formulas
// by enum value. Used by ir/, codegen/, kernels/cpu and runtime/cpu.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/elementwise/elementwise.h"

namespace forge::elementwise {

/// How many operands a function has. A kGate has a formula f of one value; with two operands it means f(x) * y, which
/// is a GLU. A kCommutative function may swap its two operands.
enum class Form : std::uint8_t { kUnary, kBinary, kCommutative, kGate };
/// Which values a parameter may have: any finite number, or positive finite numbers.
enum class Range : std::uint8_t { kFinite, kPositive };

#define FORGE_NO_ROW(...)
#define FORGE_ENUMERATOR(name, Name, ...) k##Name,
/// All functions, in the order of elementwise.h. The values are the numbers that plans store.
enum class Function : std::uint8_t { FORGE_ELEMENTWISE_FUNCTIONS(FORGE_ENUMERATOR, FORGE_ENUMERATOR) };
#undef FORGE_ENUMERATOR

/// Name and valid range of a parameter.
struct Parameter {
  std::string_view name;
  Range range{};
};

inline constexpr std::size_t kParametersMax = 4;
/// The parameter values of one use of a function; entries past the function's last parameter are 0.
using Parameters = std::array<float, kParametersMax>;

/// One row of elementwise.h.
struct FunctionDef {
  Function function{};
  std::string_view name;
  bool is_activation = false;
  Form form{};
  int flops = 0;
  std::size_t parameter_count = 0;
  Parameter parameters[kParametersMax]{};
};

namespace detail {

/// `def` with its parameters. The last element of `parameters` is a dummy, because an array has at least one element.
template <std::size_t N>
consteval FunctionDef with_parameters(FunctionDef def, const Parameter (&parameters)[N]) {
  static_assert(N - 1 <= kParametersMax, "a function has at most kParametersMax parameters");
  def.parameter_count = N - 1;
  for (std::size_t i = 0; i + 1 < N; ++i) def.parameters[i] = parameters[i];
  return def;
}

/// FORGE_EACH(M, (a, b), (c, d)) expands to M(a, b) M(c, d). It takes up to kParametersMax lists.
#define FORGE_EACH_1(M, one) M one
#define FORGE_EACH_2(M, one, ...) M one FORGE_EACH_1(M, __VA_ARGS__)
#define FORGE_EACH_3(M, one, ...) M one FORGE_EACH_2(M, __VA_ARGS__)
#define FORGE_EACH_4(M, one, ...) M one FORGE_EACH_3(M, __VA_ARGS__)
#define FORGE_EACH_OF(a, b, c, d, N, ...) FORGE_EACH_##N
#define FORGE_EACH(M, ...) __VA_OPT__(FORGE_EACH_OF(__VA_ARGS__, 4, 3, 2, 1, 0)(M, __VA_ARGS__))

#define FORGE_PARAMETER(name, range) Parameter{#name, Range::range},
#define FORGE_ROW(name, Name, is_activation, form, flops, ...)                  \
  with_parameters({Function::k##Name, #name, is_activation, Form::form, flops}, \
                  {FORGE_EACH(FORGE_PARAMETER, __VA_ARGS__) Parameter()}),
#define FORGE_OP_ROW(name, Name, ...) FORGE_ROW(name, Name, false, __VA_ARGS__)
#define FORGE_ACTIVATION_ROW(name, Name, ...) FORGE_ROW(name, Name, true, __VA_ARGS__)
inline constexpr FunctionDef kRows[] = {FORGE_ELEMENTWISE_FUNCTIONS(FORGE_OP_ROW, FORGE_ACTIVATION_ROW)};
#undef FORGE_ROW
#undef FORGE_OP_ROW
#undef FORGE_ACTIVATION_ROW
#undef FORGE_PARAMETER

}  // namespace detail

inline constexpr std::size_t kFunctionCount = sizeof detail::kRows / sizeof detail::kRows[0];

/// The row of a function. `function` must be one of the enumerators.
constexpr const FunctionDef& function_def(Function function) {
  return detail::kRows[static_cast<std::size_t>(function)];
}
/// The function with a number that a plan states, or nothing if no row has it.
constexpr std::optional<Function> find_function(std::size_t number) {
  if (number >= kFunctionCount) return std::nullopt;
  return detail::kRows[number].function;
}
/// True if `value` is in the parameter's range. NaN is in no range.
constexpr bool in_range(Range range, float value) {
  constexpr float kLargest = 3.402823466e38f;
  return value >= -kLargest && value <= kLargest && (range != Range::kPositive || value > 0);
}

/// True if the function can be applied to one value.
constexpr bool is_unary(Form form) {
  return form == Form::kUnary || form == Form::kGate;
}
/// True if the function can be applied to two values. Gates are both unary and binary.
constexpr bool is_binary(Form form) {
  return form != Form::kUnary;
}

/// Formula<F>::of is the formula of function F. It takes the operands and then the parameters.
template <Function F>
struct Formula;
#define FORGE_FORMULA_OF(name, Name, ...)          \
  template <>                                      \
  struct Formula<Function::k##Name> {              \
    template <class V, class... More>              \
    FORGE_FORMULA static V of(V x, More... more) { \
      return elementwise::name(x, more...);        \
    }                                              \
  };
FORGE_ELEMENTWISE_FUNCTIONS(FORGE_FORMULA_OF, FORGE_FORMULA_OF)
#undef FORGE_FORMULA_OF

template <Function F>
using ParameterIndices = std::make_index_sequence<detail::kRows[static_cast<std::size_t>(F)].parameter_count>;

/// f(x). `parameters` are as many values of V as the row has.
template <Function F, class V, std::size_t... I>
FORGE_FORMULA V unary(V x, [[maybe_unused]] const V* parameters, std::index_sequence<I...>) {
  return Formula<F>::of(x, V(parameters[I])...);
}
/// f(x, y); for a gate f(x) * y.
template <Function F, class V, std::size_t... I>
FORGE_FORMULA V binary(V x, V y, [[maybe_unused]] const V* parameters, std::index_sequence<I...> indices) {
  if constexpr (detail::kRows[static_cast<std::size_t>(F)].form == Form::kGate)
    return unary<F>(x, parameters, indices) * y;
  else
    return Formula<F>::of(x, y, V(parameters[I])...);
}

}  // namespace forge::elementwise

#pragma once
// The rows of elementwise.h as data, for the host: numbers, names, forms, parameters; and the formulas by number.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/elementwise/elementwise.h"

namespace forge::elementwise {

/// What a function is of. A kGate's formula is of one value; of two it is f(x) * y, the GLU's product.
enum class Form : std::uint8_t { kUnary, kBinary, kCommutative, kGate };
/// What a parameter must be.
enum class Range : std::uint8_t { kFinite, kPositive };

#define FORGE_NO_ROW(...)
#define FORGE_ENUMERATOR(name, Name, ...) k##Name,
enum class Function : std::uint8_t { FORGE_ELEMENTWISE_FUNCTIONS(FORGE_ENUMERATOR, FORGE_ENUMERATOR) };
#undef FORGE_ENUMERATOR

struct Parameter {
  std::string_view name;
  Range range{};
};

inline constexpr std::size_t kParametersMax = 4;
/// The values of a function's parameters; behind its last one 0.
using Parameters = std::array<float, kParametersMax>;

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

/// The last of `parameters` is none, for an array has an element at least.
template <std::size_t N>
consteval FunctionDef with_parameters(FunctionDef def, const Parameter (&parameters)[N]) {
  static_assert(N - 1 <= kParametersMax, "a function has at most kParametersMax parameters");
  def.parameter_count = N - 1;
  for (std::size_t i = 0; i + 1 < N; ++i) def.parameters[i] = parameters[i];
  return def;
}

/// FORGE_EACH(M, (a, b), (c, d)): M(a, b) M(c, d), of up to kParametersMax.
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

/// A function's row; only for functions that are enumerators.
constexpr const FunctionDef& function_def(Function function) {
  return detail::kRows[static_cast<std::size_t>(function)];
}
/// The function with that number, from a plan; nothing where no row has it.
constexpr std::optional<Function> find_function(std::size_t number) {
  if (number >= kFunctionCount) return std::nullopt;
  return detail::kRows[number].function;
}
/// Is `value` what the parameter may be? NaN is in no range.
constexpr bool in_range(Range range, float value) {
  constexpr float kLargest = 3.402823466e38f;
  return value >= -kLargest && value <= kLargest && (range != Range::kPositive || value > 0);
}

constexpr bool is_unary(Form form) {
  return form == Form::kUnary || form == Form::kGate;
}
constexpr bool is_binary(Form form) {
  return form != Form::kUnary;
}

/// Formula<F>::of: the formula of row F, of values and then parameters.
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

/// f(x); parameters: values of V, as many as the row has.
template <Function F, class V, std::size_t... I>
FORGE_FORMULA V unary(V x, [[maybe_unused]] const V* parameters, std::index_sequence<I...>) {
  return Formula<F>::of(x, V(parameters[I])...);
}
/// f(x, y), which for a gate is f(x) y.
template <Function F, class V, std::size_t... I>
FORGE_FORMULA V binary(V x, V y, [[maybe_unused]] const V* parameters, std::index_sequence<I...> indices) {
  if constexpr (detail::kRows[static_cast<std::size_t>(F)].form == Form::kGate)
    return unary<F>(x, parameters, indices) * y;
  else
    return Formula<F>::of(x, y, V(parameters[I])...);
}

}  // namespace forge::elementwise

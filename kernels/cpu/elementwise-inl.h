#pragma once
// The functions of kernels/elementwise as kernels on tiles: Number is the formulas' V, and each row and form of the
// list becomes one kernel.

#include "kernels/cpu/simd-inl.h"
#include "kernels/elementwise/function.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// 16 lanes with the operators that formulas use. Nothing is contracted (meson.build); -x is 0 - x.
struct Number {
  V lanes;
  FORGE_INLINE explicit Number(V v) : lanes(v) {}
  FORGE_INLINE explicit Number(float x) : lanes(M::set1(x)) {}

  FORGE_INLINE friend Number operator+(Number a, Number b) { return Number(add(a.lanes, b.lanes)); }
  FORGE_INLINE friend Number operator-(Number a, Number b) { return Number(sub(a.lanes, b.lanes)); }
  FORGE_INLINE friend Number operator*(Number a, Number b) { return Number(mul(a.lanes, b.lanes)); }
  FORGE_INLINE friend Number operator/(Number a, Number b) { return Number(div(a.lanes, b.lanes)); }
  FORGE_INLINE friend Number operator-(Number a) { return Number(sub(zero(), a.lanes)); }
  FORGE_INLINE friend Number fma(Number a, Number b, Number c) { return Number(fma(a.lanes, b.lanes, c.lanes)); }
  FORGE_INLINE friend Number min(Number a, Number b) { return Number(vmin(a.lanes, b.lanes)); }
  FORGE_INLINE friend Number max(Number a, Number b) { return Number(vmax(a.lanes, b.lanes)); }
  FORGE_INLINE friend Number abs(Number a) { return Number(vabs(a.lanes)); }
  FORGE_INLINE friend Number exp(Number x) { return Number(exp(x.lanes)); }
  FORGE_INLINE friend Number scaled_tanh(Number x, Number s) {
    return Number(mul(tanh(div(x.lanes, s.lanes)), s.lanes));
  }
  FORGE_INLINE friend Number select_lt(Number a, Number b, Number yes, Number no) {
    return Number(select_lt(a.lanes, b.lanes, yes.lanes, no.lanes));
  }
};

/// x[t][i] = f(x[t][i] as a V, t) for all elements of a tile.
template <class F>
FORGE_INLINE void for_each_vector(const Tile& x, F f) {
  for (std::size_t t = 0; t < x.rows; ++t) {
    float* row = x.data + t * x.stride;
    std::size_t i = 0;
    for (; i + 16 <= x.width; i += 16) M::store(f(M::load(row + i), t), row + i);
    if (i < x.width) store_n(f(load_n(row + i, x.width - i), t), row + i, x.width - i);
  }
}

/// out[t][i] = f(x[t][i], y[t][i]) for all elements of `out`, which may be x or y.
template <class F>
FORGE_INLINE void for_each_pair(const ConstTile& x, const ConstTile& y, const Tile& out, F f) {
  for (std::size_t t = 0; t < out.rows; ++t) {
    const float *a = x.data + t * x.stride, *b = y.data + t * y.stride;
    float* o = out.data + t * out.stride;
    std::size_t i = 0;
    for (; i + 16 <= out.width; i += 16) M::store(f(M::load(a + i), M::load(b + i)), o + i);
    if (const std::size_t n = out.width - i; n > 0) store_n(f(load_n(a + i, n), load_n(b + i, n)), o + i, n);
  }
}

/// A function's parameters broadcast to vectors. They are read before the loop, because the compiler must assume that a
/// store to the tile changes them.
template <elementwise::Function F>
struct Constants {
  static constexpr std::size_t kCount = elementwise::function_def(F).parameter_count;
  Number numbers[kCount + 1];
  template <std::size_t... I>
  FORGE_INLINE Constants(const float* parameters, std::index_sequence<I...>)
      : numbers{Number(parameters[I])..., Number(0.0f)} {}
};

/// The kernels of form UnaryFn and BinaryFn (kernels.h).
template <elementwise::Function F>
void unary(Tile x, const float* parameters) {
  constexpr elementwise::ParameterIndices<F> kIndices;
  const Constants<F> constants(parameters, kIndices);
  for_each_vector(x, [&](V v, std::size_t) FORGE_INLINE_BODY {
    return elementwise::unary<F>(Number(v), constants.numbers, kIndices).lanes;
  });
}
template <elementwise::Function F>
void binary(ConstTile x, ConstTile y, Tile out, const float* parameters) {
  constexpr elementwise::ParameterIndices<F> kIndices;
  const Constants<F> constants(parameters, kIndices);
  for_each_pair(x, y, out, [&](V a, V b) FORGE_INLINE_BODY {
    return elementwise::binary<F>(Number(a), Number(b), constants.numbers, kIndices).lanes;
  });
}

/// The kernel of a function, or nullptr if it cannot take one (two) operands.
template <elementwise::Function F>
consteval UnaryFn unary_kernel() noexcept {
  if constexpr (elementwise::is_unary(elementwise::function_def(F).form))
    return unary<F>;
  else
    return nullptr;
}
template <elementwise::Function F>
consteval BinaryFn binary_kernel() noexcept {
  if constexpr (elementwise::is_binary(elementwise::function_def(F).form))
    return binary<F>;
  else
    return nullptr;
}

// The rows of the two function tables in Kernels.
#define FORGE_UNARY_KERNEL(name, Name, ...) unary_kernel<elementwise::Function::k##Name>(),
#define FORGE_BINARY_KERNEL(name, Name, ...) binary_kernel<elementwise::Function::k##Name>(),
#define FORGE_UNARY_KERNELS FORGE_ELEMENTWISE_FUNCTIONS(FORGE_UNARY_KERNEL, FORGE_UNARY_KERNEL)
#define FORGE_BINARY_KERNELS FORGE_ELEMENTWISE_FUNCTIONS(FORGE_BINARY_KERNEL, FORGE_BINARY_KERNEL)

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE

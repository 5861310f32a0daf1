#pragma once
// The vocabulary of elementwise formulas. A formula is a template over a value type V. The interpreter instantiates it
// with float, each CPU class with 16 lanes (kernels/cpu/elementwise-inl.h), and GPU kernels include it as source text
// with a device's float. Operations round once each and are not contracted to fma, so the order of a formula is the
// order of its roundings.
//
// A V is constructible from float, has + - * / and -x, and these functions, which each back-end implements:
//   exp(x)                     e^x; NaN gives NaN
//   fma(a, b, c)               a b + c, rounded once where the back-end has fma
//   scaled_tanh(x, s)          s tanh(x / s), s > 0; one function, because GPUs fold s into a power of 2
//   min(a, b), max(a, b)       b if either is NaN
//   abs(x)
//   select_lt(a, b, yes, no)   a < b ? yes : no
// times_sigmoid, log1p and expm1 below are built from these. A back-end with better versions declares them as overloads
// for its V.
//
// Free-standing like kernels/quant. Functions are forced inline, because translation units are compiled for different
// CPUs: the linker could otherwise keep a copy that was compiled for a newer CPU.

#if defined(__HIP__) || defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define FORGE_FORMULA __attribute__((device)) __attribute__((always_inline)) inline
#else
#define FORGE_FORMULA [[gnu::always_inline]] inline
#endif

namespace forge::elementwise {

/// x / (1 + e^-y)
template <class V>
FORGE_FORMULA V times_sigmoid(V x, V y) {
  return x / (V(1.0f) + exp(-y));
}

/// ln(1 + x) within a few ulp for x in [0, 1]. It is 2 artanh(s) with s = x / (x + 2) <= 1/3, as a series of odd powers
/// of s whose truncation error is below 2^-28.
template <class V>
FORGE_FORMULA V log1p(V x) {
  const V s = x / (x + V(2.0f)), z = s * s, twice = s + s;
  V series = V(1.0f / 15);
  series = fma(series, z, V(1.0f / 13));
  series = fma(series, z, V(1.0f / 11));
  series = fma(series, z, V(1.0f / 9));
  series = fma(series, z, V(1.0f / 7));
  series = fma(series, z, V(1.0f / 5));
  series = fma(series, z, V(1.0f / 3));
  return fma(twice * z, series, twice);
}

/// e^x - 1 within a few ulp. For |x| < 1/2 a Taylor series with a truncation error below 2^-26, where e^x - 1 would
/// cancel; otherwise computed through exp.
template <class V>
FORGE_FORMULA V expm1(V x) {
  V series = V(1.0f / 40320);
  series = fma(series, x, V(1.0f / 5040));
  series = fma(series, x, V(1.0f / 720));
  series = fma(series, x, V(1.0f / 120));
  series = fma(series, x, V(1.0f / 24));
  series = fma(series, x, V(1.0f / 6));
  series = fma(series, x, V(0.5f));
  return select_lt(abs(x), V(0.5f), fma(x * x, series, x), exp(x) - V(1.0f));
}

}  // namespace forge::elementwise

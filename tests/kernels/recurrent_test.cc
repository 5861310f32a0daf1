// Kernels with recurrent state, of every CPU class, against scalar code in f64: with and without a state to continue,
// with sizes that fill no vector. All classes with FMA give the same bits, however columns and tokens are divided into
// calls.

#include <cmath>
#include <functional>

#include "tests/kernels/support.h"

using namespace forge;
using forge::test::Guarded;
using forge::test::Random;

namespace {

using Doubles = std::vector<double>;

/// The part of a case that one call computes.
struct Part {
  std::size_t token, tokens, column, columns;
};

/// A kernel with its inputs. `state` is [rows][columns], before the first token.
struct Case {
  std::string name;
  std::size_t tokens = 0, rows = 0, columns = 0;
  std::vector<float> state;
  /// Runs `part`; read and write point at the part's first column, out at its first result.
  std::function<void(const cpu::Kernels&, const Part&, const float* read, float* write, float* out)> run;
  /// Computes y [tokens][columns] and the state after the last token.
  std::function<void(Doubles& state, Doubles& y)> reference;
};

struct Results {
  std::vector<float> out, state;
};

/// Runs a case in parts. `begins` lists where the parts begin, the first at 0. With `fresh` the state starts at zero.
Results run(const Case& of, const cpu::Kernels& kernels, bool fresh, const std::vector<std::size_t>& tokens = {0},
            const std::vector<std::size_t>& columns = {0}) {
  Guarded<float> out(of.tokens * of.columns), state(of.rows * of.columns);
  const auto end = [](const std::vector<std::size_t>& begins, std::size_t i, std::size_t total) {
    return i + 1 < begins.size() ? begins[i + 1] : total;
  };
  for (std::size_t c = 0; c < columns.size(); ++c)
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const Part part{tokens[t], end(tokens, t, of.tokens) - tokens[t], columns[c],
                      end(columns, c, of.columns) - columns[c]};
      const float* first = fresh ? nullptr : of.state.data() + part.column;
      float* write = state.data() + part.column;
      of.run(kernels, part, t == 0 ? first : write, write, out.data() + part.token * of.columns + part.column);
    }
  out.check();
  state.check();
  return {{out.data(), out.data() + out.size()}, {state.data(), state.data() + state.size()}};
}

void check_close(const std::vector<float>& got, const Doubles& want) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    power += want[i] * want[i];
  }
  CHECK(error <= 1e-11 * power);
}

cpu::TokenFloats from(const std::vector<float>& x, std::size_t stride, std::size_t token, std::size_t column = 0) {
  return {x.data() + token * stride + column, stride};
}

/// The members that all calls have. `columns`: of the whole state and of the rows of y.
cpu::StateCall call_of(const Part& part, std::size_t columns, const float* read, float* write, float* out) {
  return {.tokens = part.tokens,
          .columns = part.columns,
          .read = read,
          .write = write,
          .state_stride = columns,
          .out = out,
          .out_stride = columns};
}

/// Decays between about 0.5 and 1.
std::vector<float> log_decays(Random& random, std::size_t count) {
  auto out = random.floats(count);
  for (float& x : out) x = -std::fabs(0.3f * x);
  return out;
}

Case short_conv(std::size_t columns, std::size_t taps, bool bias) {
  Random random(1);
  Case of{.name = "short_conv", .tokens = 7, .rows = taps - 1, .columns = columns};
  of.state = random.floats(of.rows * columns);
  const auto x = random.floats(of.tokens * columns), kernel = random.floats(columns * taps),
             offsets = random.floats(columns);
  of.run = [=](const cpu::Kernels& kernels, const Part& part, const float* read, float* write, float* out) {
    cpu::ShortConvCall call{call_of(part, columns, read, write, out)};
    call.taps = taps;
    call.x = from(x, columns, part.token, part.column);
    call.kernel = kernel.data() + part.column * taps;
    call.bias = bias ? offsets.data() + part.column : nullptr;
    kernels.short_conv(call);
  };
  of.reference = [=](Doubles& state, Doubles& y) {
    Doubles inputs = state;
    inputs.insert(inputs.end(), x.begin(), x.end());
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] = bias ? offsets[i % columns] : 0;
      for (std::size_t k = 0; k < taps; ++k) y[i] += kernel[i % columns * taps + k] * inputs[i + k * columns];
    }
    std::copy(inputs.end() - static_cast<std::ptrdiff_t>(state.size()), inputs.end(), state.begin());
  };
  return of;
}

/// x divided by sqrt(sum of squares + eps).
Doubles unit(const float* x, std::size_t count, double eps) {
  Doubles out(x, x + count);
  double squares = eps;
  for (const double v : out) squares += v * v;
  for (double& v : out) v /= std::sqrt(squares);
  return out;
}

Case delta_rule(std::size_t keys, std::size_t columns, bool each_row) {
  Random random(2);
  Case of{
      .name = each_row ? "delta_rule, a decay each row" : "delta_rule", .tokens = 5, .rows = keys, .columns = columns};
  of.state = random.floats(keys * columns);
  const std::size_t decays = each_row ? keys : 1;
  const auto q = random.floats(of.tokens * keys), k = random.floats(of.tokens * keys),
             v = random.floats(of.tokens * columns), decay = log_decays(random, of.tokens * decays),
             beta = random.floats(of.tokens, 0.5f);
  constexpr float kScale = 0.3f, kEps = 0.02f;
  of.run = [=](const cpu::Kernels& kernels, const Part& part, const float* read, float* write, float* out) {
    cpu::DeltaRuleCall call{call_of(part, columns, read, write, out)};
    call.key_dim = keys;
    call.q = from(q, keys, part.token);
    call.k = from(k, keys, part.token);
    call.v = from(v, columns, part.token, part.column);
    call.decay = from(decay, decays, part.token);
    call.beta = from(beta, 1, part.token);
    call.decay_each_row = each_row;
    call.scale = kScale;
    call.norm_eps = kEps;
    kernels.delta_rule(call);
  };
  of.reference = [=, tokens = of.tokens](Doubles& s, Doubles& y) {
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto key = unit(k.data() + t * keys, keys, kEps), query = unit(q.data() + t * keys, keys, kEps);
      for (std::size_t j = 0; j < columns; ++j) {
        double recalled = 0, sum = 0;
        for (std::size_t i = 0; i < keys; ++i) {
          s[i * columns + j] *= std::exp(static_cast<double>(decay[t * decays + (each_row ? i : 0)]));
          recalled += s[i * columns + j] * key[i];
        }
        for (std::size_t i = 0; i < keys; ++i) {
          s[i * columns + j] += key[i] * beta[t] * (v[t * columns + j] - recalled);
          sum += s[i * columns + j] * query[i];
        }
        y[t * columns + j] = kScale * sum;
      }
    }
  };
  return of;
}

/// One head of `columns` columns, or with `channels` a head for each column.
Case selective_scan(std::size_t states, std::size_t columns, bool channels, bool each_state) {
  Random random(3);
  Case of{.name = channels ? "scan_channels" : "scan_head", .tokens = 6, .rows = states, .columns = columns};
  of.state = random.floats(states * columns);
  const std::size_t heads = channels ? columns : 1;
  const auto x = random.floats(of.tokens * columns), b = random.floats(of.tokens * states),
             c = random.floats(of.tokens * states), d = random.floats(heads),
             a = log_decays(random, heads * (each_state ? states : 1));
  auto dt = random.floats(of.tokens * heads);
  for (float& value : dt) value = std::fabs(value);
  of.run = [=](const cpu::Kernels& kernels, const Part& part, const float* read, float* write, float* out) {
    const std::size_t head = channels ? part.column : 0;
    const auto kernel = channels ? kernels.scan_channels : kernels.scan_head;
    cpu::SelectiveScanCall call{call_of(part, columns, read, write, out)};
    call.state_dim = states;
    call.x = from(x, columns, part.token, part.column);
    call.dt = from(dt, heads, part.token, head);
    call.b = from(b, states, part.token);
    call.c = from(c, states, part.token);
    call.a = a.data() + head * (each_state ? states : 1);
    call.a_each_state = each_state;
    call.d = d.data() + head;
    kernel(call);
  };
  of.reference = [=, tokens = of.tokens](Doubles& h, Doubles& y) {
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t p = 0; p < columns; ++p) {
        const std::size_t head = channels ? p : 0;
        const double step = dt[t * heads + head], in = x[t * columns + p];
        double& sum = y[t * columns + p] = d[head] * in;
        for (std::size_t n = 0; n < states; ++n) {
          const double rate = a[each_state ? head * states + n : head];
          double& value = h[n * columns + p];
          value = value * std::exp(step * rate) + step * in * b[t * states + n];
          sum += value * c[t * states + n];
        }
      }
  };
  return of;
}

Case rwkv7(std::size_t dim, std::size_t columns) {
  Random random(4);
  Case of{.name = "rwkv7", .tokens = 5, .rows = dim, .columns = columns};
  of.state = random.floats(dim * columns);
  std::vector<std::vector<float>> rows;  // r, w, k, a, b
  for (int i = 0; i < 5; ++i) rows.push_back(random.floats(of.tokens * dim, 0.3f));
  const auto v = random.floats(of.tokens * columns);
  of.run = [=](const cpu::Kernels& kernels, const Part& part, const float* read, float* write, float* out) {
    const auto row = [&](std::size_t i) { return from(rows[i], dim, part.token); };
    cpu::Rwkv7Call call{call_of(part, columns, read, write, out)};
    call.head_dim = dim;
    call.r = row(0);
    call.w = row(1);
    call.k = row(2);
    call.v = from(v, columns, part.token, part.column);
    call.a = row(3);
    call.b = row(4);
    kernels.rwkv7(call);
  };
  of.reference = [=, tokens = of.tokens](Doubles& s, Doubles& y) {
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t j = 0; j < columns; ++j) {
        const auto at = [&](std::size_t which, std::size_t i) -> double { return rows[which][t * dim + i]; };
        double recalled = 0;
        for (std::size_t i = 0; i < dim; ++i) recalled += s[i * columns + j] * at(3, i);
        double& sum = y[t * columns + j] = 0;
        for (std::size_t i = 0; i < dim; ++i) {
          double& value = s[i * columns + j];
          value = at(1, i) * value + at(4, i) * recalled + at(2, i) * v[t * columns + j];
          sum += value * at(0, i);
        }
      }
  };
  return of;
}

/// Columns: less than a vector, whole vectors, several passes and a rest.
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::size_t columns : {5, 32, 75}) {
    out.push_back(short_conv(columns, 4, true));
    out.push_back(short_conv(columns, 2, false));
    out.push_back(short_conv(columns, cpu::kConvTapsMax, true));
    out.push_back(delta_rule(19, columns, false));
    out.push_back(delta_rule(19, columns, true));
    for (const bool each_state : {false, true}) {
      out.push_back(selective_scan(21, columns, false, each_state));
      out.push_back(selective_scan(21, columns, true, each_state));
    }
    out.push_back(rwkv7(18, columns));
  }
  return out;
}

}  // namespace

TEST_CASE("kernels with recurrent state agree with scalar code in f64") {
  for (const Case& of : cases())
    for (const bool fresh : {true, false}) {
      Doubles state(of.state.begin(), of.state.end()), y(of.tokens * of.columns);
      if (fresh) std::ranges::fill(state, 0);
      of.reference(state, y);
      for (const auto* kernels : test::all_kernels()) {
        INFO(of.name << ", " << of.columns << " columns, fresh " << fresh << ", " << test::label(*kernels));
        const auto got = run(of, *kernels, fresh);
        check_close(got.out, y);
        check_close(got.state, state);
      }
    }
}

TEST_CASE("a state is updated in place, and columns and tokens may be divided in any way, with the same bits") {
  for (const Case& of : cases())
    for (const auto* kernels : test::all_kernels()) {
      INFO(of.name << ", " << of.columns << " columns, " << test::label(*kernels));
      const auto whole = run(of, *kernels, false);
      for (const std::vector<std::size_t>& columns : {std::vector<std::size_t>{0}, {0, 3}, {0, of.columns - 1}})
        for (const std::vector<std::size_t>& tokens : {std::vector<std::size_t>{0}, {0, 1, 2}, {0, 4}}) {
          const auto parts = run(of, *kernels, false, tokens, columns);
          CHECK(test::same_bits(parts.out.data(), whole.out.data(), whole.out.size()));
          CHECK(test::same_bits(parts.state.data(), whole.state.data(), whole.state.size()));
        }
    }
}

TEST_CASE("kernels with recurrent state give the same bits in every class with FMA") {
  const auto classes = test::kernels_with_fma();
  for (const Case& of : cases())
    for (const auto* kernels : classes) {
      INFO(of.name << ", " << of.columns << " columns, " << test::label(*kernels));
      const auto first = run(of, *classes[0], false), other = run(of, *kernels, false);
      CHECK(test::same_bits(first.out.data(), other.out.data(), first.out.size()));
      CHECK(test::same_bits(first.state.data(), other.state.data(), first.state.size()));
    }
}

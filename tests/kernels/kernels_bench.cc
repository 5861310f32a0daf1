// Speed of the CPU kernels on one thread. Names are <kernel>/<class>/<type>/<shape>. GMAC/s counts multiply-adds; GB/s
// counts the bytes of weights (or KV cache) that a call must read. Run it on an idle machine. Usage:
// kernels_bench [--benchmark_filter=matmul/x86-64-v4-vnni]

#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "kernels/cpu/matmul/pack.h"

using namespace forge;

namespace {

std::vector<DType> types() {
  std::vector<DType> out;
  for (const auto& row : kDTypes)
    if (quant::has_kernels(row.type)) out.push_back(row.type);
  return out;
}

/// 64-byte aligned bytes that give normal arithmetic: small positive f16 scales, arbitrary quants.
struct Buffer {
  std::unique_ptr<std::byte[], void (*)(std::byte*)> data;
  std::size_t size;
  explicit Buffer(std::size_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)),
             [](std::byte* p) { std::free(p); }),
        size(bytes) {
    for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i % 2 ? 0x20 : i / 2 * 37);
  }
  std::byte* get() { return data.get(); }
  float* floats() { return reinterpret_cast<float*>(data.get()); }
};

void rate(benchmark::State& state, const char* name, double each) {
  state.counters[name] = benchmark::Counter(each * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

/// For one token the weight is repeated until it exceeds the caches, as a model's layers do.
void matmul(benchmark::State& state, cpu::CpuClass cpu_class, DType type, std::size_t rows, std::size_t k,
            std::size_t tokens) {
  const std::size_t bytes = quant::x16_bytes(type, rows, k);
  const std::size_t copies = tokens > 3 ? 1 : std::max<std::size_t>(1, (std::size_t{192} << 20) / bytes);
  const std::size_t x_bytes = is_float(type) ? 4 * k : quant::q8a_row_bytes(k);
  Buffer weights(copies * bytes), x(tokens * x_bytes), out(tokens * rows * 4);
  for (std::size_t i = 0; i < x.size / 4; ++i) x.floats()[i] = 0.01f;
  const auto run = cpu::kernels(cpu_class).matmul(type);
  std::size_t copy = 0;
  for (auto _ : state) {
    run(weights.get() + copy * bytes, k, rows / 16, x.get(), x_bytes, nullptr, tokens, out.floats(), rows);
    copy = (copy + 1) % copies;
    benchmark::ClobberMemory();
  }
  rate(state, "GMAC/s", static_cast<double>(rows * k * tokens));
  rate(state, "GB/s", static_cast<double>(bytes));
}

/// SmolLM2's heads, and DeepSeek V2 Lite's latent attention (one row per token), with the number of query heads per KV
/// head.
constexpr cpu::KvShape kSmolHeads{DType::kF16, 3, 64, 64}, kLatentRow{DType::kF16, 1, 576, 512, true};
constexpr std::size_t kSmolGroup = 3, kLatentGroup = 16;

/// One sequence at `depth`: a decode token that reads as much memory as all layers have, or a tile of 16 prefill tokens
/// at the end, which reads the one layer from the CPU cache as neighbouring tiles do.
void attention(benchmark::State& state, cpu::CpuClass cpu_class, cpu::KvShape kv, std::size_t group, std::size_t depth,
               std::size_t tokens) {
  const std::size_t layers = tokens == 1 ? 30 : 1;
  const std::size_t blocks = (depth + 31) / 32, block_bytes = cpu::kv_block_bytes(kv);
  Buffer pool(layers * blocks * block_bytes), q(tokens * kv.heads * group * kv.head_dim * 4), out(q.size);
  Buffer scratch(4 * cpu::attention_scratch_floats(tokens, group, kv));
  for (std::size_t i = 0; i < q.size / 4; ++i) q.floats()[i] = 0.01f;
  std::vector<std::int32_t> table(blocks), positions(tokens);
  for (std::size_t i = 0; i < blocks; ++i) table[i] = static_cast<std::int32_t>(i * 7 % blocks);
  for (std::size_t t = 0; t < tokens; ++t) positions[t] = static_cast<std::int32_t>(depth - tokens + t);
  const auto& kernels = cpu::kernels(cpu_class);
  const std::size_t row = kv.heads * group * kv.head_dim, out_row = kv.heads * group * kv.value_dim;
  std::size_t layer = 0;
  for (auto _ : state) {
    for (std::size_t head = 0; head < kv.heads; ++head) {
      const cpu::AttentionParams params{.kv = kv,
                                        .group = group,
                                        .scale = 0.125f,
                                        .pool = pool.get() + layer * blocks * block_bytes,
                                        .block_stride = block_bytes,
                                        .block_table = table.data(),
                                        .kv_length = depth};
      const cpu::AttentionQuery query{
          q.floats() + head * group * kv.head_dim, row, kv.head_dim, tokens, positions.data(), head};
      kernels.attention_tile(params, query, scratch.floats(), out.floats() + head * group * kv.value_dim, out_row,
                             kv.value_dim);
    }
    layer = (layer + 1) % layers;
    benchmark::ClobberMemory();
  }
  rate(state, "GMAC/s", static_cast<double>(depth * tokens * (row + out_row)));
  rate(state, "GB/s", static_cast<double>(blocks * block_bytes));
}

void pack(benchmark::State& state, cpu::CpuClass cpu_class, DType type) {
  const std::size_t rows = 2048, k = 2048, bytes = row_bytes(type, k);
  Buffer native(rows * bytes), packed(quant::x16_bytes(type, rows, k));
  for (auto _ : state) {
    cpu::pack_rows(
        cpu::kernels(cpu_class), type, k, 0, rows / 16, [&](std::size_t row) { return native.get() + row * bytes; },
        packed.get());
    benchmark::ClobberMemory();
  }
  rate(state, "GB/s", static_cast<double>(rows * bytes));
}

void read(benchmark::State& state, cpu::CpuClass cpu_class) {
  Buffer data(std::size_t{192} << 20);
  for (auto _ : state) benchmark::DoNotOptimize(cpu::kernels(cpu_class).read_bytes(data.get(), data.size));
  rate(state, "GB/s", static_cast<double>(data.size));
}

inline constexpr std::size_t kRopeFloats = 12 * 64;
/// A tile of 12 tokens by 1536 columns, as an epilogue sees it. `op` runs a tile operation on two tiles and a third for
/// results. In-place operations must keep the magnitude of their values, because many CPUs are slow with denormals.
template <class Op>
void tile(benchmark::State& state, cpu::CpuClass cpu_class, Op op) {
  constexpr std::size_t kRows = 12, kWidth = 1536;
  Buffer data(kRows * kWidth * 4), other(kRows * kWidth * 4), third(kRows * kWidth * 4);
  for (std::size_t i = 0; i < kRows * kWidth; ++i)
    data.floats()[i] = other.floats()[i] = 0.001f * static_cast<float>(i % 2000) - 1.0f;
  const cpu::Tile x{data.floats(), kRows, kWidth, kWidth}, y{other.floats(), kRows, kWidth, kWidth};
  for (auto _ : state) {
    op(cpu::kernels(cpu_class), x, y, cpu::Tile{third.floats(), kRows, kWidth, kWidth});
    benchmark::ClobberMemory();
  }
  rate(state, "Gelem/s", static_cast<double>(kRows * kWidth));
}

void register_class(cpu::CpuClass c) {
  const std::string class_name(cpu::name(c));
  struct Shape {
    std::size_t rows, k;
  };
  for (const DType type : types())
    benchmark::RegisterBenchmark(("pack/" + class_name + "/" + std::string(dtype_name(type))).c_str(),
                                 [=](benchmark::State& state) { pack(state, c, type); });
  for (const std::size_t tokens : {1, 8, 512})
    for (const DType type : types())
      for (const Shape shape : {Shape{576, 1536}, Shape{1536, 576}, Shape{8192, 2048}}) {
        const std::string label = "matmul/" + class_name + "/" + std::string(dtype_name(type)) + "/" +
                                  std::to_string(shape.rows) + "x" + std::to_string(shape.k) +
                                  "/tokens:" + std::to_string(tokens);
        benchmark::RegisterBenchmark(
            label.c_str(), [=](benchmark::State& state) { matmul(state, c, type, shape.rows, shape.k, tokens); });
      }
  const auto add_attention = [&](const std::string& what, cpu::KvShape kv, std::size_t group) {
    for (const std::size_t tokens : {1, 16})
      benchmark::RegisterBenchmark(
          ("attention/" + class_name + "/" + what + "/depth:2048/tokens:" + std::to_string(tokens)).c_str(),
          [=](benchmark::State& state) { attention(state, c, kv, group, 2048, tokens); });
  };
  add_attention("f16", kSmolHeads, kSmolGroup);
  add_attention("q8_0", {DType::kQ8_0, kSmolHeads.heads, kSmolHeads.head_dim, kSmolHeads.value_dim}, kSmolGroup);
  add_attention("f16_shared_row", kLatentRow, kLatentGroup);
  benchmark::RegisterBenchmark(("read/" + class_name).c_str(), [=](benchmark::State& state) { read(state, c); });
  const auto add_tile = [&](const char* op_name, auto op) {
    benchmark::RegisterBenchmark((std::string(op_name) + "/" + class_name).c_str(),
                                 [=](benchmark::State& state) { tile(state, c, op); });
  };
  add_tile("swiglu",
           [](const auto& k, auto x, auto y, auto out) { k.binary(elementwise::Function::kSilu)(x, y, out, nullptr); });
  add_tile("add_tile", [](const auto& k, auto x, auto y, auto out) {
    k.copy(x, out);
    k.binary(elementwise::Function::kAdd)(out, y, out, nullptr);
  });
  add_tile("sum_squares", [](const auto& k, auto x, auto, auto out) { k.sum_squares(x, out.data, x.width / 16); });
  add_tile("quantize_q8a", [](const auto& k, auto x, auto, auto out) {
    k.quantize_q8a(x, reinterpret_cast<std::byte*>(out.data), quant::q8a_row_bytes(x.width), x.width, 0);
  });
  add_tile("rms_norm", [](const auto& k, auto x, auto, auto out) { k.rms_norm(x, nullptr, 1e-5f, out); });
  add_tile("rope", [](const auto& k, auto x, auto, auto out) {
    static const std::vector<float> angles = [] {
      std::vector<float> pairs(kRopeFloats);
      for (std::size_t i = 0; i < pairs.size(); i += 2) pairs[i] = 0.6f, pairs[i + 1] = 0.8f;
      return pairs;
    }();
    k.copy(x, out);
    k.rope(out, 64, 64, cpu::RopeMode::kPairs, angles.data(), 64);
  });
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto c : cpu::all_classes())
    if (cpu::runs_here(c)) register_class(c);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

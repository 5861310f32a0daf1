// Builds the tiny model's GGUF file, and runs models on the interpreter and the executors.
#include "tests/e2e/tiny_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>

#include "kernels/quant/rows.h"
#include "runtime/weights/weight_source.h"
#include "tests/kernels/golden.h"

namespace forge::tests {
namespace {

/// Random blocks of a quantised type that forge cannot quantise to. The f16 scales are chosen so that values have about
/// the standard deviation `deviation`.
std::vector<std::byte> random_blocks(DType dtype, std::size_t elems, float deviation, std::uint64_t seed) {
  const auto& golden = test::golden_of(dtype);
  const std::size_t size = dtype_info(dtype).block_bytes;
  auto data = test::random_blocks(golden, seed, elems / dtype_info(dtype).block_elems);
  std::vector<float> values(elems);
  quant::dequantize_native(dtype, data.data(), elems, values.data());
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  const float factor = deviation / static_cast<float>(std::sqrt(squares / static_cast<double>(elems)));
  for (std::size_t at = 0; at < data.size(); at += size)
    for (const std::size_t exponent : golden.exponents) {
      std::uint16_t half;
      std::memcpy(&half, data.data() + at + exponent - 1, 2);
      half = quant::f16_of_f32(quant::f32_of_f16(half) * factor);
      std::memcpy(data.data() + at + exponent - 1, &half, 2);
    }
  return data;
}

class Weights {
 public:
  Weights(GgufWriter& writer, unsigned seed) : writer_(writer), engine_(seed) {}

  /// scattered: one tensor per expert, with the expert's number before the last part of the name, as old converters
  /// write.
  void matrix(const std::string& name, std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t experts = 0,
              bool scattered = false) {
    std::normal_distribution<float> normal(0, 1.5F / std::sqrt(static_cast<float>(cols)));
    const std::size_t bytes = row_bytes(dtype, static_cast<std::size_t>(cols));
    const std::int64_t count = rows * std::max<std::int64_t>(experts, 1);
    std::vector<std::byte> data(static_cast<std::size_t>(count) * bytes);
    std::vector<float> row(static_cast<std::size_t>(cols));
    bool writes = true;
    for (std::int64_t r = 0; r < count && writes; ++r) {
      for (auto& x : row) x = normal(engine_);
      writes = quant::quantize_row(dtype, row.data(), row.size(), data.data() + static_cast<std::size_t>(r) * bytes);
    }
    if (!writes) data = random_blocks(dtype, static_cast<std::size_t>(count * cols), normal.stddev(), engine_());
    if (scattered && experts > 0) {
      const auto dot = name.rfind('.');
      const std::size_t each = data.size() / static_cast<std::size_t>(experts);
      for (std::int64_t e = 0; e < experts; ++e)
        writer_.add_tensor(fmt::format("{}.{}{}", name.substr(0, dot), e, name.substr(dot)), std::vector{cols, rows},
                           dtype,
                           {data.begin() + static_cast<std::ptrdiff_t>(each) * e,
                            data.begin() + static_cast<std::ptrdiff_t>(each) * (e + 1)});
      return;
    }
    writer_.add_tensor(name, experts > 0 ? std::vector{cols, rows, experts} : std::vector{cols, rows}, dtype, data);
  }
  /// outlier is added to one element of each `run`.
  void vector(const std::string& name, std::int64_t count, float mean, float deviation, std::int64_t experts = 0,
              float outlier = 0, std::int64_t run = 1) {
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<float> values(static_cast<std::size_t>(count * std::max<std::int64_t>(experts, 1)));
    for (auto& x : values) x = normal(engine_);
    for (std::size_t i = 0; outlier != 0 && i < values.size(); i += static_cast<std::size_t>(run)) values[i] += outlier;
    writer_.add_f32(name, experts > 0 ? std::vector{count, experts} : std::vector{count}, values);
  }

 private:
  GgufWriter& writer_;
  std::mt19937 engine_;
};

codegen::ModelFile describe(const loader::Gguf& gguf, const loader::ModelInfo& info) {
  codegen::ModelFile file{.path = "tiny.gguf",
                          .name = info.name,
                          .family = info.family,
                          .identity = gguf.identity().hex(),
                          .files = {},
                          .vocab = info.vocab,
                          .tensors = {}};
  for (const auto& part : gguf.files()) file.files.push_back({part.name, part.bytes.size(), part.identity().hex()});
  for (const auto& t : gguf.tensors())
    file.tensors.emplace(t.name, codegen::SourceTensor{t.dtype, t.rows(), t.cols(), t.offset, t.bytes(), t.file});
  return file;
}

loader::Gguf open_parts(const std::vector<std::string>& parts) {
  std::vector<loader::GgufImage> images;
  for (const auto& part : parts)
    images.push_back({fmt::format("tiny part {}", images.size() + 1), std::as_bytes(std::span(part))});
  return loader::Gguf::from(images);
}

bool has_recurrent_state(const ir::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [&](auto node) { return graph.op(node) == ir::Op::kRecurrentState; });
}

}  // namespace

std::string tiny_gguf(const TinyShape& s, unsigned seed) {
  GgufWriter w("llama");
  const auto u = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  w.add("general.name", "tiny").add("llama.block_count", u(s.layers)).add("llama.context_length", u(s.context));
  w.add("llama.embedding_length", u(s.width)).add("llama.feed_forward_length", u(s.ffn));
  w.add("llama.attention.head_count", u(s.heads)).add("llama.attention.head_count_kv", u(s.kv_heads));
  w.add("llama.attention.key_length", u(s.head_dim)).add("llama.attention.value_length", u(s.head_dim));
  w.add("llama.rope.dimension_count", u(s.head_dim)).add("llama.rope.freq_base", s.rope_base);
  w.add("llama.attention.layer_norm_rms_epsilon", s.eps);
  if (!s.rope_scaling.empty()) {
    w.add("llama.rope.scaling.type", s.rope_scaling).add("llama.rope.scaling.factor", 4.0F);
    w.add("llama.rope.scaling.original_context_length", 64u);
  }
  if (s.experts > 0) w.add("llama.expert_count", u(s.experts)).add("llama.expert_used_count", u(s.experts_used));
  Weights random(w, seed);
  random.matrix("token_embd.weight", s.vocab, s.width, s.dtype);
  if (!s.tied) random.matrix("output.weight", s.vocab, s.width, s.dtype);
  random.vector("output_norm.weight", s.width, 1, 0.2F);
  if (s.rope_freqs) random.vector("rope_freqs.weight", s.head_dim / 2, 2, 0.3F);
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const auto stem = fmt::format("blk.{}.", i);
    random.vector(stem + "attn_norm.weight", s.width, 1, 0.2F);
    random.vector(stem + "ffn_norm.weight", s.width, 1, 0.2F);
    const auto linear = [&](const char* name, std::int64_t n, std::int64_t k, std::int64_t experts = 0) {
      const auto type = s.types.find(name);
      random.matrix(stem + name + ".weight", n, k, type == s.types.end() ? s.dtype : type->second, experts);
      if (s.biases)
        random.vector(stem + name + ".bias", n, 0, 0.3F, experts,
                      std::string_view(name) == "attn_k" ? s.key_outlier : 0, s.head_dim);
    };
    linear("attn_q", s.heads * s.head_dim, s.width);
    linear("attn_k", s.kv_heads * s.head_dim, s.width);
    linear("attn_v", s.kv_heads * s.head_dim, s.width);
    linear("attn_output", s.width, s.heads * s.head_dim);
    if (s.experts > 0) {
      random.matrix(stem + "ffn_gate_inp.weight", s.experts, s.width, DType::kF32);
      const auto experts = [&](const char* name, std::int64_t n, std::int64_t k) {
        if (s.scattered)
          random.matrix(fmt::format("{}ffn_{}.weight", stem, name), n, k, s.dtype, s.experts, true);
        else
          linear(fmt::format("ffn_{}_exps", name).c_str(), n, k, s.experts);
      };
      experts("gate", s.ffn, s.width);
      experts("up", s.ffn, s.width);
      experts("down", s.width, s.ffn);
      continue;
    }
    linear("ffn_gate", s.ffn, s.width);
    linear("ffn_up", s.ffn, s.width);
    linear("ffn_down", s.width, s.ffn);
  }
  return w.bytes();
}

FileImage read_image(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {{std::istreambuf_iterator<char>(in), {}}};
}

TinyModel::TinyModel(SplitImage image)
    : image_(std::move(image)),
      gguf_(open_parts(image_.parts)),
      portable_(loader::build_model(gguf_)),
      file_(describe(gguf_, portable_.info)) {}

runtime::SpanWeightSource TinyModel::source() const {
  std::vector<runtime::SpanWeightSource::File> files;
  for (const auto& part : image_.parts) files.push_back(std::as_bytes(std::span(part)));
  return {"tiny", std::move(files)};
}

ir::WeightLoader TinyModel::weights() const {
  const auto load = [this](const std::string& name, const ir::TensorType& type) {
    const auto& tensor = gguf_.tensor(name);
    std::vector<float> out(static_cast<std::size_t>(tensor.elems()));
    const auto cols = static_cast<std::size_t>(tensor.cols());
    for (std::size_t r = 0; r < static_cast<std::size_t>(tensor.rows()); ++r)
      quant::dequantize_native(type.dtype, tensor.data.data() + r * row_bytes(type.dtype, cols), cols,
                               out.data() + r * cols);
    return out;
  };
  return [load](const std::string& name, const ir::TensorType& type) {
    const auto mark = name.find(ir::kExpertWildcard);
    if (mark == std::string::npos) return load(name, type);
    std::vector<float> all;
    for (std::int64_t slice = 0; slice < type.shape[0].value; ++slice) {
      const auto one = load(std::string(name).replace(mark, 1, std::to_string(slice)), type);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  };
}

std::vector<float> TinyModel::reference(const ir::Graph& graph, const std::vector<std::int32_t>& ids,
                                        bool quantize_activations) const {
  ir::StepInputs in;
  in.ids = ids;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    in.positions.push_back(static_cast<std::int32_t>(t));
    in.sequence.push_back(0);
    in.rows.push_back(static_cast<std::int32_t>(t));
  }
  in.kv_length = {static_cast<std::int32_t>(ids.size())};
  in.block_table.emplace_back((portable_.info.context + 31) / 32);  // room for the whole context, as in a program
  std::iota(in.block_table[0].begin(), in.block_table[0].end(), 0);
  if (has_recurrent_state(graph)) {
    in.state_read = {-1};
    in.state_write = {0};
  }
  ir::ReferenceKv kv;
  const auto name = graph.outputs().front().name;  // "logits" or "hidden"
  return ir::interpret(graph, in, kv, weights(), quantize_activations).at(name).f32;
}

std::vector<float> run_alone(runtime::Executor& executor, const std::vector<std::int32_t>& ids, std::size_t chunk,
                             std::vector<std::int32_t> blocks) {
  const std::size_t stride = blocks.size();
  for (std::size_t group = 1; group < executor.kv_pool_sizes().size(); ++group)
    for (std::size_t i = 0; i < stride; ++i) blocks.push_back(blocks[i]);
  std::vector<float> logits;
  for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
    const std::size_t count = std::min(chunk, ids.size() - begin);
    std::vector<std::int32_t> positions(count), sequence(count, 0), rows(count);
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(begin));
    std::iota(rows.begin(), rows.end(), 0);
    const std::int32_t length[1] = {static_cast<std::int32_t>(begin + count)};
    const std::int32_t read[1] = {begin == 0 ? -1 : 0}, write[1] = {0};
    const std::size_t states = executor.state_slots() > 0 ? 1 : 0;
    const auto out = executor.forward({.ids = std::span(ids).subspan(begin, count),
                                       .positions = positions,
                                       .sequence = sequence,
                                       .rows = rows,
                                       .kv_length = length,
                                       .block_table = blocks,
                                       .table_stride = stride,
                                       .state_read = std::span(read).first(states),
                                       .state_write = std::span(write).first(states)});
    logits.insert(logits.end(), out.begin(), out.end());
  }
  return logits;
}

std::vector<float> after_copied_block(runtime::Executor& executor, const std::vector<std::int32_t>& prompt,
                                      std::span<const std::int32_t, 2> tokens) {
  run_alone(executor, prompt, 64, {4, 9});
  const runtime::BlockCopy copies[] = {{.from = 9, .to = 2}};
  const auto position = static_cast<std::int32_t>(prompt.size());
  const std::int32_t positions[] = {position, position}, sequence[] = {0, 1}, length[] = {position + 1, position + 1},
                     tables[] = {4, 9, 4, 2};
  const auto out = executor.forward({.ids = tokens,
                                     .positions = positions,
                                     .sequence = sequence,
                                     .rows = sequence,
                                     .kv_length = length,
                                     .block_table = tables,
                                     .table_stride = 2,
                                     .copies = copies});
  return {out.begin(), out.end()};
}

std::vector<std::int32_t> random_ids(std::size_t count, std::int64_t vocab, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<std::int32_t> pick(0, static_cast<std::int32_t>(vocab) - 1);
  std::vector<std::int32_t> ids(count);
  for (auto& id : ids) id = pick(engine);
  return ids;
}

double nmse(std::span<const float> x, std::span<const float> reference) {
  const double mean = std::accumulate(reference.begin(), reference.end(), 0.0) / static_cast<double>(reference.size());
  double error = 0, power = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    error += (static_cast<double>(x[i]) - reference[i]) * (static_cast<double>(x[i]) - reference[i]);
    power += (reference[i] - mean) * (reference[i] - mean);
  }
  return error / power;
}

std::vector<float> hidden_rows_of(runtime::Executor& executor, const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> positions(ids.size()), sequence(ids.size(), 0);
  std::iota(positions.begin(), positions.end(), 0);
  const std::int32_t length[1] = {static_cast<std::int32_t>(ids.size())};
  const auto rows = executor.forward({.ids = ids,
                                      .positions = positions,
                                      .sequence = sequence,
                                      .rows = positions,
                                      .kv_length = length,
                                      .block_table = {},
                                      .table_stride = 1,
                                      .hidden = true});
  return {rows.begin(), rows.end()};
}

}  // namespace forge::tests

#include "session/synthetic/synthetic_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <optional>
#include <vector>

#include "kernels/quant/rows.h"
#include "session/memory_limit.h"
#include "support/error.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"

namespace forge::session {
namespace {

/// Sizes from the metadata of the models' GGUF files.
constexpr std::array kShapes{
    SyntheticShape{"smollm2", "SmolLM2 135M", 30, 576, 1536, 9, 3, 64, 49152, true, 100000, 8192, 0},
    SyntheticShape{"1b", "Llama 3.2 1B", 16, 2048, 8192, 32, 8, 64, 128256, true, 500000, 131072, 32},
    SyntheticShape{"8b", "Llama 3.1 8B", 32, 4096, 14336, 32, 8, 128, 128256, false, 500000, 131072, 8},
    SyntheticShape{"tiny", "a test's", 4, 512, 1024, 8, 2, 64, 32000, true, 500000, 8192, 32},
};

constexpr std::size_t kPoolElems = std::size_t{1} << 20;
constexpr std::size_t kAlignment = 32;

struct Tensor {
  std::string name;
  std::int64_t rows = 0, cols = 0;  ///< rows 0: a vector of `cols` elements
  DType type = DType::kF32;
  [[nodiscard]] std::uint64_t bytes() const {
    return row_bytes(type, static_cast<std::size_t>(cols)) *
           static_cast<std::uint64_t>(std::max<std::int64_t>(rows, 1));
  }
};

/// The type that llama.cpp's quantiser gives the output projection in a file of type `type`.
DType head_type(DType type) {
  switch (type) {
    case DType::kQ4_1:
      return DType::kQ8_0;
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kIQ4_XS:
      return DType::kQ6_K;
    default:
      return type;
  }
}

std::vector<Tensor> tensors_of(const SyntheticModel& model) {
  const auto& s = *model.shape;
  std::vector<Tensor> tensors;
  const auto matrix = [&](std::string name, std::int64_t rows, std::int64_t cols) {
    tensors.push_back({std::move(name), rows, cols, model.type});
  };
  const auto vector = [&](std::string name, std::int64_t elems) { tensors.push_back({std::move(name), 0, elems}); };
  tensors.push_back({"token_embd.weight", s.vocab, s.width, s.tied ? head_type(model.type) : model.type});
  if (s.rope_factor > 0) vector("rope_freqs.weight", s.head_dim / 2);
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const auto block = fmt::format("blk.{}.", i);
    vector(block + "attn_norm.weight", s.width);
    matrix(block + "attn_q.weight", s.heads * s.head_dim, s.width);
    matrix(block + "attn_k.weight", s.kv_heads * s.head_dim, s.width);
    matrix(block + "attn_v.weight", s.kv_heads * s.head_dim, s.width);
    matrix(block + "attn_output.weight", s.width, s.heads * s.head_dim);
    vector(block + "ffn_norm.weight", s.width);
    matrix(block + "ffn_gate.weight", s.ffn, s.width);
    matrix(block + "ffn_up.weight", s.ffn, s.width);
    matrix(block + "ffn_down.weight", s.width, s.ffn);
  }
  vector("output_norm.weight", s.width);
  if (!s.tied) tensors.push_back({"output.weight", s.vocab, s.width, head_type(model.type)});
  return tensors;
}

/// The head of a GGUF file, version 3 (source: ggml/docs/gguf.md): metadata, tensor table, padding.
class Header {
 public:
  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(std::string_view text) {
    put(std::uint64_t{text.size()});
    bytes_ += text;
  }
  void entry(std::string_view key, std::string_view text) {
    key_of_type(key, 8);
    put_text(text);
  }
  void entry(std::string_view key, std::int64_t value) {
    key_of_type(key, 4);
    put(static_cast<std::uint32_t>(value));
  }
  void entry(std::string_view key, float value) {
    key_of_type(key, 6);
    put(value);
  }
  void tensor(const Tensor& tensor) {
    put_text(tensor.name);
    put(std::uint32_t{tensor.rows > 0 ? 2U : 1U});
    put(tensor.cols);
    if (tensor.rows > 0) put(tensor.rows);
    put(static_cast<std::uint32_t>(tensor.type));
    put(offset_);
    offset_ += padded(tensor.bytes());
  }
  [[nodiscard]] std::uint64_t entries() const { return entries_; }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

  static std::uint64_t padded(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  void key_of_type(std::string_view key, std::uint32_t type) {
    put_text(key);
    put(type);
    ++entries_;
  }

  std::string bytes_;
  std::uint64_t entries_ = 0, offset_ = 0;
};

std::string header_of(const SyntheticModel& model, const std::vector<Tensor>& tensors) {
  const auto& s = *model.shape;
  Header body;
  body.entry("general.architecture", "llama");
  body.entry("general.name", "random " + model.name());
  body.entry("general.quantization_version", std::int64_t{2});
  body.entry("llama.block_count", s.layers);
  body.entry("llama.context_length", s.context);
  body.entry("llama.embedding_length", s.width);
  body.entry("llama.feed_forward_length", s.ffn);
  body.entry("llama.attention.head_count", s.heads);
  body.entry("llama.attention.head_count_kv", s.kv_heads);
  body.entry("llama.attention.key_length", s.head_dim);
  body.entry("llama.attention.value_length", s.head_dim);
  body.entry("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  body.entry("llama.rope.dimension_count", s.head_dim);
  body.entry("llama.rope.freq_base", s.rope_base);
  body.entry("llama.vocab_size", s.vocab);
  body.entry("tokenizer.ggml.model", "none");
  const auto entries = body.entries();
  for (const auto& tensor : tensors) body.tensor(tensor);
  Header head;
  head.put(std::array{'G', 'G', 'U', 'F'});
  head.put(std::uint32_t{3});
  head.put(std::uint64_t{tensors.size()});
  head.put(entries);
  auto bytes = head.take() + body.take();
  bytes.resize(Header::padded(bytes.size()));
  return bytes;
}

/// Llama 3's RoPE factors for long contexts, one per pair of dimensions: 1 for short wavelengths, rope_factor for long
/// ones, and a smooth blend between (source: the model's published `rope_scaling`: low 1, high 4, original 8192).
std::vector<float> rope_factors(const SyntheticShape& shape) {
  constexpr double kLow = 1, kHigh = 4, kOriginal = 8192;
  std::vector<float> factors;
  for (std::int64_t i = 0; i < shape.head_dim; i += 2) {
    const double turn = std::pow(static_cast<double>(shape.rope_base), double(i) / double(shape.head_dim));
    const double wavelength = 2 * std::numbers::pi * turn;
    const double smooth = (kOriginal / wavelength - kLow) / (kHigh - kLow);
    const double blend = 1 / ((1 - smooth) / shape.rope_factor + smooth);
    factors.push_back(static_cast<float>(wavelength < kOriginal / kHigh  ? 1
                                         : wavelength > kOriginal / kLow ? shape.rope_factor
                                                                         : blend));
  }
  return factors;
}

std::string shape_names() {
  std::vector<std::string_view> names;
  for (const auto& shape : kShapes) names.push_back(shape.name);
  return fmt::format("shapes are {}", fmt::join(names, ", "));
}

std::string type_names() {
  std::vector<std::string_view> names;
  for (const auto& row : kDTypes)
    if (quant::has_kernels(row.type)) names.push_back(row.name);
  return fmt::format("types are {}", fmt::join(names, ", "));
}

}  // namespace

SyntheticModel SyntheticModel::parse(std::string_view text) {
  const auto refuse = [&](std::string why, std::string fix) {
    return Error(ErrorCode::kUsage, fmt::format("--synthetic cannot make '{}'", printable(text)), std::move(why),
                 std::move(fix));
  };
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) throw refuse("it is not SHAPE:TYPE", shape_names() + "; " + type_names());
  const auto shape = std::ranges::find(kShapes, text.substr(0, colon), &SyntheticShape::name);
  if (shape == kShapes.end()) throw refuse("its shape is unknown", shape_names());
  const auto type = dtype_of_name(text.substr(colon + 1));
  if (!type || !quant::has_kernels(*type)) throw refuse("its type is unknown", type_names());
  const auto block = static_cast<std::int64_t>(dtype_info(*type).block_elems);
  for (const auto cols : {shape->width, shape->ffn})
    if (cols % block != 0)
      throw refuse(fmt::format("its row length {} is not a multiple of the type's block size {}", cols, block),
                   type_names());
  return {.shape = &*shape, .type = *type};
}

std::string SyntheticModel::name() const {
  return fmt::format("{}:{}", shape->name, dtype_name(type));
}

std::uint64_t SyntheticModel::weight_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& tensor : tensors_of(*this)) bytes += tensor.bytes();
  return bytes;
}

void write_synthetic(const SyntheticModel& model, const ByteSink& sink) {
  const auto tensors = tensors_of(model);
  const auto header = header_of(model, tensors);
  sink(std::as_bytes(std::span(header)));
  std::map<DType, SyntheticPool> pools;
  Random random;
  constexpr std::array<std::byte, kAlignment> kZeros{};
  for (const auto& tensor : tensors) {
    check_interrupt();
    if (tensor.rows == 0) {
      const auto values = tensor.name == "rope_freqs.weight"
                              ? rope_factors(*model.shape)
                              : std::vector<float>(static_cast<std::size_t>(tensor.cols), 1.0F);
      sink(std::as_bytes(std::span(values)));
    } else {
      auto pool = pools.find(tensor.type);
      if (pool == pools.end()) {
        auto made = SyntheticPool::make(tensor.type, kPoolElems);
        invariant(made.has_value(), "SYN-001", "parse() accepts only types that a pool can be made of");
        pool = pools.emplace(tensor.type, *std::move(made)).first;
      }
      pool->second.write(tensor.bytes(), random, sink);
    }
    sink(std::span(kZeros).first(Header::padded(tensor.bytes()) - tensor.bytes()));
  }
}

SyntheticFile::SyntheticFile(const SyntheticModel& model) {
  const auto bytes = model.weight_bytes();
  const auto limit = memory_available();
  if (2 * bytes > limit.bytes)
    throw Error(ErrorCode::kMemory, fmt::format("{} does not fit into memory", model.name()),
                fmt::format("the file and the executor's copy of its weights need {}, {} is {}", human_bytes(2 * bytes),
                            limit.what, human_bytes(limit.bytes)),
                "use a smaller shape or type, or write it to a file with --save");
  const auto fail = [&](int number) {
    return Error(ErrorCode::kIo, fmt::format("cannot create {} in memory", model.name()), std::strerror(number),
                 "write it to a file with --save and measure that file");
  };
  fd_ = UniqueFd(::memfd_create("forge-synthetic", MFD_CLOEXEC));
  if (!fd_) throw fail(errno);
  write_synthetic(model, [&](std::span<const std::byte> piece) {
    if (const int failed = write_all(fd_.get(), piece); failed != 0) throw fail(failed);
  });
}

std::string SyntheticFile::path() const {
  return fmt::format("/proc/self/fd/{}", fd_.get());
}

void save_synthetic(const SyntheticModel& model, const std::filesystem::path& path) {
  AtomicFile file(path);
  write_synthetic(model, [&](std::span<const std::byte> piece) { file.write(piece); });
  file.commit();
}

}  // namespace forge::session

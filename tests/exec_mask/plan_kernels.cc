// Collects the kernel sources of small models' plans without compiling them, and removes near-duplicates.
#include "tests/exec_mask/plan_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <ranges>
#include <set>

#include "codegen/gpu/source/kernel_text.h"
#include "codegen/gpu/tile_sizes.h"
#include "runtime/plan/step.h"
#include "tests/e2e/family_models.h"
#include "tests/e2e/tiny_model.h"
#include "tests/support/reference_data.h"

namespace forge::tests {
namespace {

/// A KernelCompiler that records the sources and returns empty code.
class Recorder final : public codegen::KernelCompiler {
 public:
  std::vector<codegen::CompiledKernel> compile(const std::string& /*target*/,
                                               std::span<const codegen::KernelSource> sources) override {
    for (const auto& source : sources) texts.emplace(source.entry, source.text);
    return std::vector<codegen::CompiledKernel>(sources.size());
  }

  std::map<std::string, std::string> texts;
};

using Stems = std::vector<std::string_view>;
/// Selects kernels of a model's variants by the start of their names; "" selects all. Kernels similar to those of
/// another variant or model are left out, as are prefill variants between the shortest and the longest.
struct Choice {
  Stems decode, batch, short_prompt, long_prompt;
};
/// A small model and what is selected of it. `hidden`: also of the steps that give embeddings.
struct Model {
  TinyModel model;
  Choice choice;
  std::int64_t batch_max = 1;
  bool hidden = false;
};

/// Models with recurrent state, files of the reference data.
constexpr std::array kRecurrent{"families/qwen35-q4_0.gguf", "families/mamba-f16.gguf", "families/mamba2-q4_0.gguf",
                                "families/rwkv7-q4_0.gguf"};

/// The models, made once, because quantising their weights takes longer than planning. A kernel that the first two
/// share is compiled once. Files of the reference data are left out where it is absent.
const std::deque<Model>& models() {
  static const std::deque<Model> kModels = [] {
    TinyShape shape{.dtype = DType::kQ8_0,
                    .layers = 1,
                    .width = 256,
                    .ffn = 512,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 64,
                    .vocab = 96,
                    .tied = false};
    shape.types = {{"ffn_gate", DType::kQ4_K},     {"ffn_up", DType::kQ4_K},        {"ffn_down", DType::kQ4_0},
                   {"attn_output", DType::kBF16},  {"ffn_gate_exps", DType::kQ4_0}, {"ffn_up_exps", DType::kQ4_0},
                   {"ffn_down_exps", DType::kQ4_0}};
    std::deque<Model> all;
    all.emplace_back(TinyModel(shape),
                     Choice{{""}, {"attention", "sample", "matmul_q8_0"}, {"attention", "matmul"}, {""}}, 2);
    shape.experts = 8;
    shape.experts_used = 2;
    all.emplace_back(
        TinyModel(shape),
        Choice{{"expert", "route", "sum_experts", "matmul_f32"}, {}, {}, {"expert", "route", "sum_experts"}});
    const auto family = [&](const char* name, Choice choice, bool hidden = false) {
      all.emplace_back(TinyModel(FileImage{family_gguf(family_model(name))}), std::move(choice), 1, hidden);
    };
    for (const char* name : {"gpt_oss", "gemma2"}) family(name, {{""}, {}, {}, {"attention"}});
    family("llama4", {{}, {}, {}, {"attention"}});  // attention in chunks
    const Choice rest{{"batched", "delta_rule", "gaussian", "latent", "layer_norm", "match_rms", "rms_norm", "rwkv7",
                       "selective_scan", "short_conv", "store_kv"},
                      {},
                      {},
                      {"delta_rule", "latent", "rwkv7", "selective_scan", "self_attention", "short_conv"}};
    for (const char* name : {"gemma3n", "mistral4"}) family(name, rest);
    family("gemma_embedding", rest, true);
    for (const char* name : kRecurrent)
      if (const auto path = reference_path(name); exists(path)) all.emplace_back(TinyModel(read_image(path)), rest);
    return all;
  }();
  return kModels;
}

std::set<std::string> entries_of(const plan::ProgramT& program, const Choice& choice) {
  std::set<std::string> entries;
  const auto add = [&](const auto& steps, const Stems& stems) {
    for (const auto& step : steps)
      if (const auto kernel = plan::kernel_name(program, *step);
          step->body.type != plan::Body::CopySource &&
          std::ranges::any_of(stems, [&](const auto stem) { return kernel.starts_with(stem); }))
        entries.emplace(kernel);
  };
  for (const auto& variant : program.variants) {
    const bool last = variant == program.variants.back(), decodes = variant->name.starts_with("decode");
    const Stems* stems = last ? &choice.long_prompt : decodes ? &choice.batch : &choice.short_prompt;
    if (variant == program.variants.front()) stems = &choice.decode;
    if (!last && !decodes && variant->name != fmt::format("prefill{}", codegen::kTokenTile)) continue;
    add(variant->steps, *stems);
    add(variant->sample_steps, *stems);
  }
  add(program.load_steps, {""});
  return entries;
}

/// Kernels with the same key are compiled once. Kernels that differ only in their numbers of columns or tokens share a
/// key, if their code is short or, for sampling, equal but for those numbers.
std::string kind_of(const std::string& entry) {
  constexpr std::array kAlike{"arrange",  "batched",    "embed", "gather", "layer_norm", "match_rms", "repack",
                              "rms_norm", "rope_table", "rows",  "sample", "short_conv", "store_kv",  "sum_experts"};
  if (std::ranges::none_of(kAlike, [&](const char* stem) { return entry.starts_with(stem); })) return entry;
  std::string kind;
  for (const auto part : std::views::split(entry.substr(0, entry.rfind('_')), '_')) {
    const std::string_view word(part);
    if (word.find_first_not_of("0123456789x") == std::string_view::npos) continue;
    const bool bound = (word[0] == 't' || word[0] == 'r') && word.find_first_not_of("0123456789", 1) == word.npos;
    kind += bound ? (word.substr(1) == "1" ? "one " : "many ") : std::string(word) + " ";
  }
  return kind;
}

}  // namespace

std::vector<codegen::KernelSource> plan_kernels(const codegen::GpuTarget& target) {
  std::vector<codegen::KernelSource> all;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < models().size(); ++i) {
    const auto& [model, choice, batch_max, hidden] = models()[i];
    Recorder recorder;
    codegen::CompileOptions options;
    options.context = 1024;
    options.batch_max = batch_max;
    options.hidden = hidden;
    options.kernels = &recorder;
    const auto program =
        codegen::compile_program(model.portable().graph, model.file(), std::string(target.name), options);
    for (const std::string& entry : entries_of(*program, choice))
      if (seen.insert(kind_of(entry)).second) all.push_back({entry, recorder.texts.at(entry)});
  }
  return all;
}

bool has_recurrent_models() {
  return std::ranges::all_of(kRecurrent, [](const char* name) { return exists(reference_path(name)); });
}

std::vector<std::string> kernel_classes(const codegen::GpuTarget& target) {
  std::vector<std::string> names{"matmul_q8_0_", "matmul_q4_0_", "matmul_q4_k_", "matmul_bf16_",
                                 "experts_",     "embed_",       "gather_",      "route_",
                                 "rope_table_",  "sample_",      "repack_q4_k_", "repack_q8_0_"};
  names.insert(names.end(), {"latent_attention_", "self_attention_", "batched_", "layer_norm_", "match_rms_"});
  if (has_recurrent_models()) names.insert(names.end(), {"delta_rule_", "selective_scan_", "rwkv7_", "short_conv_"});
  if (target.matrix == codegen::MatrixKind::kNone)
    names.emplace_back("attention_4");
  else
    names.insert(names.end(), {"attention_heads_4", "tiles_q8_0_", "tiles_q4_k_", "tiles_bf16_", "expert_tiles_",
                               "attention_tiles_"});
  return names;
}

codegen::KernelSource used_behind_branch(const codegen::GpuTarget& target) {
  const bool tiles = target.matrix != codegen::MatrixKind::kNone;
  const std::string_view product = R"(
  NativeTile::Fragments f{};
  NativeInt8Tile::Fragments bytes{};
  for (int i = 0; i < NativeTile::Fragments::kA / 2; ++i) f.a[i] = load(args.words + 8 * lane_id() + i);
  for (int i = 0; i < NativeTile::Fragments::kB / 2; ++i) f.b[i] = load(args.words + 9 * lane_id() + i);
  for (int i = 0; i < NativeInt8Tile::Fragments::kA; ++i) bytes.a[i] = static_cast<i8>(load(args.words + i));
  for (int i = 0; i < NativeInt8Tile::Fragments::kB; ++i) bytes.b[i] = static_cast<i8>(load(args.words + lane_id() + i));
  multiply_tile(NativeTile(), f);
  multiply_tile(NativeInt8Tile(), bytes);
  const float tile = f.c[0] + static_cast<float>(bytes.c[0]);)";
  return {"used_behind_branch", fmt::format(R"({}#include "kernels/gpu/{}.h"

namespace forge::gpu {{
struct BehindArgs {{
  const float* in;
  const u32* words;
  float* out;
}};
FORGE_KERNEL(used_behind_branch, 1, FORGE_WAVE, BehindArgs) {{
  const float value = load(args.in + lane_id());
  const float sum = sum_lanes<kWave>(value), row = sum_lanes<16>(value), most = max_lanes<kWave>(value);
  const i32 count = max_lanes<kWave>(static_cast<i32>(value)), other = shuffle(static_cast<i32>(value), lane_id() / 3);{}
  if (lane_id() % 5 == 0) args.out[lane_id()] = sum + row + most + static_cast<float>(count + other) + tile;
}}
}}  // namespace forge::gpu
)",
                                            codegen::target_macros(target), tiles ? "matrix_tile" : "prelude/prelude",
                                            tiles ? product : "\n  constexpr float tile = 0;")};
}

codegen::KernelSource planted_kernel(const codegen::GpuTarget& target) {
  return {"planted", fmt::format(R"({}#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {{
struct PlantedArgs {{
  const float* in;
  float* out;
}};
FORGE_KERNEL(planted, 1, FORGE_WAVE, PlantedArgs) {{
  float value = load(args.in + lane_id());
  if (value > 1.0f) value += shuffle_xor<8>(value) * load(args.in + 3 * lane_id());
  args.out[lane_id()] = value;
}}
}}  // namespace forge::gpu
)",
                                 codegen::target_macros(target))};
}

}  // namespace forge::tests

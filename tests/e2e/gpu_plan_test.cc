// Programs for GPUs as code generation makes them: number of launches, kernels, and the numbers in their sources. No
// compiler is needed: Recorder stands in for it.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "codegen/compile.h"
#include "codegen/gpu/tuning.h"
#include "codegen/kernel_compiler.h"
#include "kernels/quant/planes.h"
#include "passes/pass.h"
#include "runtime/plan/gpu_io.h"
#include "runtime/plan/step.h"
#include "support/error.h"
#include "tests/e2e/family_models.h"
#include "tests/e2e/gpu_recorder.h"
#include "tests/support/error_of.h"
#include "tests/support/skip.h"

namespace forge::tests {
namespace {

const TinyShape kQ8{.dtype = DType::kQ8_0};
constexpr std::array kTypes{DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};

}  // namespace

TEST_CASE("gpu plan: sparse attention chooses keys in two launches for few rows, in one for many") {
  for (const char* family : {"deepseek32", "minimax_m3"}) {
    CAPTURE(family);
    const TinyModel model(FileImage{family_gguf(family_model(family))});
    Recorder recorder;
    const auto program = compile(model, "gfx1100", recorder);
    std::map<std::string, std::map<std::string, int>> steps;  // by variant and label
    for (const auto& variant : program->variants)
      for (const auto& step : variant->steps) ++steps[variant->name][step->label];
    CHECK(steps["decode1"]["select_keys"] == steps["decode1"]["choose keys"]);
    CHECK(steps["decode1"]["select_keys"] > 0);
    CHECK(steps["prefill512"]["select_keys"] == steps["decode1"]["select_keys"]);
    CHECK(steps["prefill512"]["choose keys"] == 0);
  }
}

TEST_CASE("gpu plan: index heads for which a block's shared memory is too small are refused in one line") {
  FamilyJson json = family_model("deepseek32");
  json["keys"]["attention.indexer.head_count"] = 800;
  for (auto& [name, recipe] : json["tensors"].items())
    if (name.find("indexer.attn_q_b") != std::string::npos || name.find("indexer.proj") != std::string::npos)
      recipe[0][0] = recipe[0][0].get<int>() / 3 * 800;
  const TinyModel model(FileImage{family_gguf(json)});
  Recorder recorder;
  const auto line = error_of([&] { compile(model, "gfx1100", recorder); });
  CHECK_THAT(line, Catch::Contains("800 index heads of 16 columns") && Catch::Contains("--device cpu"));
  CHECK(line.find('\n') == std::string::npos);
}

TEST_CASE("gpu plan: a layer is five launches, in a prompt also one for 1/rms, and layers share their kernels") {
  for (const auto dtype : kTypes) {
    CAPTURE(dtype_name(dtype));
    const TinyModel two({.dtype = dtype}), three({.dtype = dtype, .layers = 3});
    Recorder kernels_of_two, kernels_of_three;
    const auto program = compile(two, "gfx1100", kernels_of_two);
    compile(three, "gfx1100", kernels_of_three);
    REQUIRE(program->variants.size() == 3);
    for (const auto& variant : program->variants) {
      CAPTURE(variant->name);
      // Rows of x are never a launch: their producers store them as matrix tiles take them.
      const bool prompt = variant->name == "prefill512";
      std::map<int, int> launches, factors;
      for (const auto& step : variant->steps) {
        ++(prompt && step->label == "1/rms of rows" ? factors : launches)[step->layer];
      }
      for (const int layer : {0, 1}) {
        CHECK(launches[layer] == 5);
        CHECK(factors[layer] <= 2);
      }
    }
    CHECK(kernels_of_two.texts.size() == kernels_of_three.texts.size());
  }
}

TEST_CASE("gpu plan: a decode layer whose v has another type than q and k is five launches too") {
  for (const auto* target : {"gfx1100", "gfx942", "sm_90"}) {
    CAPTURE(target);
    const TinyModel model({.dtype = DType::kQ4_K,
                           .width = 256,
                           .ffn = 512,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 64,
                           .types = {{"attn_v", DType::kQ6_K}}});
    Recorder recorder;
    const auto program = compile(model, target, recorder);
    const auto& decode = *program->variants.front();
    std::map<int, int> launches;
    int stores = 0;
    for (const auto& step : decode.steps) {
      ++launches[step->layer];
      if (step->label.contains("store_k | ") && step->label.contains("store_v")) ++stores;
    }
    CHECK(launches[0] == 5);
    CHECK(launches[1] == 5);
    CHECK(stores == 2);
  }
}

TEST_CASE("gpu plan: launches of a decode layer, by what the layer has") {
  struct Family {
    const char* file;
    const char* kind;  ///< layers with a step of this label
    int most;
  };
  constexpr Family kFamilies[] = {
      {"families/qwen35-q4_0.gguf", "delta_rule", 7},     {"families/qwen35moe-q8_0.gguf", "delta_rule", 10},
      {"families/mamba2-q4_0.gguf", "selective_scan", 6}, {"conformance/gemma3-q4_k_m.gguf", "attention", 5},
      {"families/gemma4-e-f16.gguf", "attention", 8},     {"families/gemma4-moe-q8_0.gguf", "attention", 8}};
  for (const auto& [name, kind, most] : kFamilies) {
    const auto path = reference_file(name);
    if (path.empty()) return;
    CAPTURE(name);
    const TinyModel model(read_image(path));
    Recorder recorder;
    const auto program = compile(model, "gfx1100", recorder);
    std::map<int, int> launches;
    std::set<int> counted;
    for (const auto& step : program->variants[0]->steps) {
      ++launches[step->layer];
      if (step->layer >= 0 && step->label.find(kind) != std::string::npos) counted.insert(step->layer);
    }
    int largest = 0;
    for (const auto layer : counted) largest = std::max(largest, launches[layer]);
    CHECK(largest == most);
  }
}

TEST_CASE("gpu plan: recurrences of long prompts take matrix instructions, others go token by token") {
  struct Family {
    const char *file, *op;
    bool tiles;  ///< there are tiles for its decays
  };
  constexpr Family kFamilies[] = {{"families/qwen3next-f16.gguf", "delta_rule", true},
                                  {"families/kimi-linear-f16.gguf", "delta_rule", true},
                                  {"families/rwkv7-q4_0.gguf", "rwkv7", true},
                                  {"families/mamba2-q4_0.gguf", "selective_scan", true},
                                  {"families/mamba-f16.gguf", "selective_scan", false}};
  for (const auto& [name, op, tiles] : kFamilies) {
    const auto path = reference_file(name);
    if (path.empty()) return;
    const TinyModel model(read_image(path));
    for (const auto* target : {"gfx1100", "gfx90a", "sm_80", "sm_75"}) {
      Recorder recorder;
      const auto program = compile(model, target, recorder);
      std::size_t checked = 0;
      for (const auto& variant : program->variants)
        for (const auto& step : variant->steps) {
          if (step->label != op) continue;
          CAPTURE(name, target, variant->name);
          const bool long_prompt = variant->name == "prefill128" || variant->name == "prefill512";
          const auto kernel = plan::kernel_name(*program, *step);
          const bool by_tiles = kernel.starts_with(std::string(op) + "_tiles");
          CHECK(by_tiles == (tiles && long_prompt && std::string_view(target) != "sm_75"));
          checked += long_prompt ? 1 : 0;
        }
      CHECK(checked > 0);
    }
  }
}

TEST_CASE("gpu plan: every type that a weight may have has a layout for GPUs, IQ types in the file's size") {
  for (const auto& row : kDTypes) {
    CAPTURE(row.name);
    CHECK(quant::has_planes(row.type) == quant::has_kernels(row.type));
  }
  Recorder recorder;
  const TinyModel model({.dtype = DType::kIQ2_S, .width = 256, .ffn = 256, .heads = 4, .kv_heads = 2, .head_dim = 64});
  const auto program = compile(model, "gfx1100", recorder);
  std::size_t packed = 0;
  for (const auto& weight : program->weights) {
    if (weight->dtype != static_cast<std::uint8_t>(DType::kIQ2_S)) continue;
    ++packed;
    CHECK(weight->bytes ==
          static_cast<std::uint64_t>(weight->rows) * row_bytes(DType::kIQ2_S, static_cast<std::size_t>(weight->cols)));
  }
  CHECK(packed > 0);
}

TEST_CASE("gpu plan: RoPE factors cost no launch") {
  TinyShape with = kQ8;
  with.rope_freqs = true;
  const TinyModel plain(kQ8), factors(with);
  Recorder recorder;
  const auto expected = compile(plain, "gfx1100", recorder)->variants[0]->steps.size();
  const auto program = compile(factors, "gfx1100", recorder);
  CHECK(program->variants[0]->steps.size() == expected);
  const auto tables = recorder.with("rope_table_");
  CHECK(std::ranges::count_if(tables, [](const auto& text) { return text.find("kFactors = true") != text.npos; }) > 0);
  CHECK(std::ranges::count_if(tables, [](const auto& text) { return text.find("kFactors = false") != text.npos; }) > 0);
  // Buffer lifetimes count the steps of the plan, without the step that became part of another launch.
  for (const auto& variant : program->variants)
    for (const auto& buffer : variant->buffers) CHECK(buffer->last < variant->steps.size());
}

TEST_CASE("gpu plan: sources contain the model's numbers, and other shapes give other sources") {
  Recorder small, wide;
  compile(TinyModel(kQ8), "gfx1100", small);
  compile(TinyModel({.dtype = DType::kQ8_0, .width = 128}), "gfx1100", wide);
  const auto down = small.with("matmul_q8_0_64x96_t1_");
  REQUIRE(!down.empty());
  CHECK(down[0].find("WeightQ8_0<64, 96>") != std::string::npos);
  CHECK(down[0].find("#define FORGE_WAVE 32") != std::string::npos);
  CHECK(wide.with("matmul_q8_0_64x96_t1_").empty());
  CHECK(!wide.with("matmul_q8_0_128x96_t1_").empty());
  const auto attention = small.with("attention_4x16_t1_");
  REQUIRE(attention.size() == 1);
  CHECK(attention[0].find("kScale = 0x1p-2f") != std::string::npos);
}

TEST_CASE("gpu plan: the wave size is the target's") {
  Recorder wave64;
  compile(TinyModel(kQ8), "gfx90a", wave64);
  REQUIRE(wave64.targets == std::vector<std::string>{"gfx90a"});
  for (const auto& [entry, text] : wave64.texts) CHECK(text.starts_with("#define FORGE_WAVE 64\n"));
}

TEST_CASE("gpu plan: an attention option that the target or model does not have is refused with the reason") {
  Recorder recorder;
  const auto refusal = [&](const char* target, const char* attention, const TinyShape& shape = kQ8) {
    codegen::CompileOptions options{.context = 256, .kernels = &recorder, .attention = attention};
    const TinyModel model(shape);
    return error_of([&] { (void)codegen::compile_program(model.portable().graph, model.file(), target, options); });
  };
  CHECK_THAT(refusal("gfx1030", "tiles"), Catch::Contains("no matrix instructions"));
  CHECK_THAT(refusal("gfx1100", "tiles"), Catch::Contains("and this model's have 16 and 16"));
  CHECK_THAT(refusal("gfx1100", "rows,split"), Catch::Contains("256 positions is too short"));
  for (const char* none : {"tile", "rows,tiles", "split,split", "rows,", ",", "auto,rows", "rows split"})
    CHECK_THAT(refusal("gfx1100", none), Catch::Contains("is unknown"));
}

TEST_CASE("a requested attention option is part of the plan and of its cache key, in normalised form") {
  const auto key = [](const char* attention) {
    const std::vector<std::string> targets{"gfx1100"};
    return codegen::cache_key({.identity = "x"}, targets, {.context = 64, .attention = attention});
  };
  CHECK(key("auto") == key(""));
  CHECK(key("split,rows") == key("rows,split"));
  CHECK((key("rows") != key("") && key("rows") != key("tiles") && key("rows") != key("rows,whole")));
  Recorder recorder;
  const TinyModel model(kQ8);
  const auto program = codegen::compile_program(model.portable().graph, model.file(), "gfx1100",
                                                {.context = 256, .kernels = &recorder, .attention = "whole,rows"});
  CHECK(program->options->attention == "rows,whole");
  CHECK(codegen::options_of(*program).attention == "rows,whole");
}

TEST_CASE("gpu plan: the program's facts describe a GPU to the engine") {
  for (const auto& [target, api] : {std::pair("gfx90a", "HIP"), std::pair("sm_90", "CUDA")}) {
    Recorder recorder;
    const auto program = compile(TinyModel(kQ8), target, recorder);
    const auto& facts = *program->facts;
    CHECK(facts.api == api);
    CHECK((!facts.on_host && facts.samples && facts.gives_hidden));
    CHECK((facts.prompt_tokens == 128 && facts.long_prompt == 0));
    std::vector<std::uint8_t> types{static_cast<std::uint8_t>(DType::kF16), static_cast<std::uint8_t>(DType::kQ8_0),
                                    static_cast<std::uint8_t>(DType::kQ4_0)};
    if (api == std::string_view("CUDA")) types.push_back(static_cast<std::uint8_t>(DType::kFp8));
    CHECK(facts.kv_types == types);
  }
}

TEST_CASE("gpu plan: decode variants cover every batch up to the largest, and every variant samples") {
  Recorder recorder;
  const auto program = compile(TinyModel(kQ8), "sm_90", recorder, 5);
  std::vector<std::string> names;
  for (const auto& variant : program->variants) {
    names.push_back(variant->name);
    CHECK(variant->sample_steps.size() == 1);
  }
  CHECK(names == std::vector<std::string>{"decode1", "decode2", "decode4", "decode8", "prefill16", "prefill512"});
}

TEST_CASE("gpu plan: every operand lies in its memory space, every kernel has a code object") {
  for (const auto dtype : kTypes) {
    Recorder recorder;
    const TinyModel model({.dtype = dtype, .tied = false, .biases = true});
    const auto program = compile(model, "sm_90", recorder, 4);
    std::set<std::string> objects;
    for (const auto& object : program->code_objects) objects.insert(object->name);
    CHECK(objects.size() == program->code_objects.size());
    const auto check = [&](const plan::StepT& step) {
      const std::string kernel(plan::kernel_name(*program, step));
      CAPTURE(kernel);
      CHECK((objects.contains(kernel) || step.body.type == plan::Body::CopySource));
      for (const auto& ref : step.operands) {
        if (ref.space() == plan::Space::Arena) CHECK(ref.offset() < static_cast<std::uint64_t>(program->arena_bytes));
        if (ref.space() == plan::Space::Weights)
          CHECK(ref.offset() < static_cast<std::uint64_t>(program->weights_bytes));
        if (ref.space() == plan::Space::Counters)
          CHECK(ref.offset() < static_cast<std::uint64_t>(program->counter_bytes));
        if (ref.space() == plan::Space::Constants) CHECK(ref.offset() < program->constants.size());
      }
    };
    for (const auto& variant : program->variants) {
      for (const auto& step : variant->steps) check(*step);
      for (const auto& step : variant->sample_steps) check(*step);
    }
    for (const auto& step : program->load_steps) check(*step);
  }
}

TEST_CASE("gpu plan: concatenated and interleaved weights are repacked to the right rows") {
  Recorder recorder;
  const auto program = compile(TinyModel({.dtype = DType::kQ4_0}), "sm_90", recorder);
  std::set<std::string> seen;
  for (const auto& step : program->load_steps) {
    const auto* repack = step->body.AsRepack();
    if (repack == nullptr) continue;
    const auto& weight = *program->weights[repack->weight];
    if (step->label == "blk.0.attn_v.weight") {  // after 64 rows of q and 32 of k
      CHECK(repack->row_first == 96);
      CHECK(repack->unit >= weight.sources[repack->source]->rows);
      seen.insert("v");
    }
    if (step->label == "blk.1.ffn_up.weight") {  // every second group of 16 rows
      CHECK(repack->row_first == 16);
      CHECK(repack->unit == 16);
      CHECK(repack->stride == 32);
      seen.insert("up");
    }
  }
  CHECK(seen == std::set<std::string>{"up", "v"});
}

TEST_CASE("gpu plan: a program without any one pass still lowers") {
  const TinyModel model(kQ8);
  for (const auto& pass : passes::pipeline_passes()) {
    if (!pass.optional || pass.name == "fold_constants") continue;
    CAPTURE(pass.name);
    Recorder recorder;
    CHECK(compile(model, "gfx1100", recorder, 1, {std::string(pass.name)})->variants.size() == 3);
  }
}

TEST_CASE("gpu plan: manual choices apply to all kernels or, with precedence, to one shape") {
  const auto all = codegen::parse_tuning("512x256:rows=2,rows=4,units=0");
  const auto one = codegen::tuning_for(all, 512, 256, 1), other = codegen::tuning_for(all, 256, 512, 1);
  CHECK(codegen::tuned(one, "rows", 1) == 2);
  CHECK(codegen::tuned(other, "rows", 1) == 4);
  CHECK(codegen::tuned(one, "waves", 8) == 8);
  CHECK(codegen::tuned(one, "units", 5) == 0);
  CHECK(codegen::tuned_positive(one, "units", 5) == 1);
  CHECK(other.size() == 2);
  CHECK(codegen::parse_tuning("").empty());
  // A number of tokens is more precise than a shape.
  const auto steps = codegen::parse_tuning("512x256x32:rows=8,512x256:rows=2,rows=4");
  const auto rows = [&](std::int64_t tokens) { return codegen::tuning_for(steps, 512, 256, tokens).at("rows"); };
  CHECK((rows(32) == 8 && rows(1) == 2 && rows(3) == 2));
  for (const auto* text : {"512:rows=1", "512x:rows=1", "512x256x:rows=1", "512x256x1x1:rows=1", ":rows=1"})
    CHECK_THROWS_WITH(codegen::parse_tuning(text), Catch::Contains("a shape is ROWSxCOLUMNS"));
}

TEST_CASE("gpu plan: settings on top of others replace those of the same key for the same shapes and parts of them") {
  const auto base = "512x256x1:rows=2,512x256x1:waves=8,51x256:rows=3,units=1";
  CHECK(codegen::merged_tuning(base, "") == "512x256x1:rows=2,512x256x1:waves=8,51x256:rows=3,units=1");
  CHECK(codegen::merged_tuning("", "rows=4") == "rows=4");
  CHECK(codegen::merged_tuning(base, "rows=4") == "512x256x1:waves=8,rows=4,units=1");
  CHECK(codegen::merged_tuning(base, "512x256:rows=4") == "512x256:rows=4,512x256x1:waves=8,51x256:rows=3,units=1");
  CHECK(codegen::merged_tuning(base, "512x256x1:rows=4") == "512x256x1:rows=4,512x256x1:waves=8,51x256:rows=3,units=1");
  CHECK(codegen::merged_tuning(base, "512x256x16:units=4") ==
        "512x256x16:units=4,512x256x1:rows=2,512x256x1:waves=8,51x256:rows=3,units=1");
  CHECK(codegen::merged_tuning(base, "512x25:rows=4") ==
        "512x256x1:rows=2,512x256x1:waves=8,512x25:rows=4,51x256:rows=3,units=1");
  CHECK_THROWS_AS(codegen::merged_tuning(base, "row=4"), Error);
  CHECK_THROWS_AS(codegen::merged_tuning("row=4", ""), Error);
}

TEST_CASE("gpu plan: the kernels of one step size are tuned apart from others of the same shape") {
  const TinyModel model(kQ8);
  const auto sources = [&](const char* tune) {
    Recorder recorder;
    codegen::CompileOptions options{.context = 256, .kernels = &recorder, .tune = tune};
    const auto program = codegen::compile_program(model.portable().graph, model.file(), "gfx1100", options);
    std::set<std::string> names;
    for (const auto& object : program->code_objects) names.insert(object->name);
    return names;
  };
  const auto plain = sources("");
  std::set<std::string> changed;
  std::ranges::set_difference(sources("128x64x1:waves=1"), plain, std::inserter(changed, changed.end()));
  REQUIRE(!changed.empty());
  for (const auto& name : changed) CHECK_THAT(name, Catch::Contains("_128x64_t1_"));
  CHECK(sources("128x64x7:waves=1") == plain);
}

TEST_CASE("gpu plan: a program that cannot be compiled is refused in one line") {
  const TinyModel model(kQ8);
  codegen::CompileOptions options;
  options.context = 64;
  CHECK_THROWS_WITH(codegen::compile_program(model.portable().graph, model.file(), "gfx1100", options),
                    Catch::Contains("no kernel compiler"));
  Recorder recorder;
  options.kernels = &recorder;
  const auto refuses = [&](std::string_view words, std::initializer_list<const char*> tunes) {
    for (const auto* tune : tunes) {
      options.tune = tune;
      CAPTURE(tune);
      CHECK_THROWS_WITH(codegen::compile_program(model.portable().graph, model.file(), "gfx1100", options),
                        Catch::Contains(std::string(words)));
    }
  };
  refuses("is not KEY=NUMBER", {"rows", "rows=", "rows=x", "rows=-1", "rows=4;waves=2"});
  refuses("the keys are ahead, attention_chunk, ", {"row=4", "=4", "512x256:row=4", "512x256:=4", "rows:512x256=4"});
  refuses("a shape is ROWSxCOLUMNS", {"512:rows=4", "512x:rows=4", ":rows=4", "rows:rows=4", "1x2x3x4:rows=4"});
  refuses("tuning asks for", {"split=3", "waves=4,split=8", "lanes=64", "lanes=5", "waves=512", "rows=200"});
  CHECK_THROWS_WITH(codegen::resolve_targets("gfx1234"), Catch::Contains("gfx1100"));
  CHECK(codegen::resolve_targets("gfx942:sramecc+:xnack-,sm_90") == std::vector<std::string>{"gfx942", "sm_90"});
}

TEST_CASE("gpu plan: PLaMo 2's and Falcon-Mamba's layers use the kernels of Mamba's state") {
  for (const char* name : {"plamo2", "falcon_mamba"}) {
    CAPTURE(name);
    const TinyModel model(FileImage{family_gguf(family_model(name))});
    for (const char* target : {"gfx1100", "gfx942", "sm_90"}) {
      Recorder recorder;
      const auto program = compile(model, target, recorder);
      CHECK(program->recurrent_groups.size() == 2);  // convolution windows and the scan's states
      CHECK(!recorder.with("selective_scan_").empty());
      CHECK(!recorder.with("short_conv_").empty());
    }
  }
}

}  // namespace forge::tests

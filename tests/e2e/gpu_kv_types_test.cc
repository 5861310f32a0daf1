// Types of the KV cache in programs for GPUs: bytes, launches, and which models and targets have them.

#include <array>
#include <catch2/catch.hpp>

#include "tests/e2e/family_models.h"
#include "tests/e2e/gpu_recorder.h"
#include "tests/support/error_of.h"

namespace forge::tests {

TEST_CASE(
    "gpu plan: a q8_0 cache takes 17/32 of f16's bytes, a q4_0 one 9/32, an fp8 one half, and they cost no launch") {
  struct Type {
    DType dtype;
    int share;  ///< of f16's bytes, in 32nds
    const char* pool;
  };
  for (const std::int64_t head_dim : {32, 64}) {
    const TinyModel model({.dtype = DType::kQ8_0, .head_dim = head_dim, .biases = true});
    for (const char* target : {"gfx1100", "gfx90a", "gfx942", "sm_90"}) {
      Recorder half;
      const auto f16 = compile(model, target, half, 4);
      for (const auto& type : {Type{DType::kQ8_0, 17, ", KvQ8_0>"}, Type{DType::kQ4_0, 9, ", KvQ4_0>"},
                               Type{DType::kFp8, 16, ", KvFp8>"}}) {
        if (!codegen::supports_kv_type(target, type.dtype)) continue;
        CAPTURE(head_dim, target, type.pool);
        Recorder quantised;
        const auto small = compile(model, target, quantised, 4, {}, type.dtype);
        REQUIRE(small->kv_groups.size() == f16->kv_groups.size());
        for (std::size_t g = 0; g < small->kv_groups.size(); ++g)
          CHECK(small->kv_groups[g].block_bytes() * 32 == f16->kv_groups[g].block_bytes() * type.share);
        REQUIRE(small->variants.size() == f16->variants.size());
        for (std::size_t i = 0; i < small->variants.size(); ++i)
          CHECK(small->variants[i]->steps.size() == f16->variants[i]->steps.size());
        const auto attention = quantised.with("attention_");
        CHECK(!attention.empty());
        for (const auto& text : attention) CHECK(text.find(type.pool) != std::string::npos);
      }
    }
  }
}

TEST_CASE("gpu plan: an fp8 cache is for targets that convert 8-bit floats") {
  for (const char* target : {"sm_89", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950", "gfx1200", "gfx1201"})
    CHECK(codegen::supports_kv_type(target, DType::kFp8));
  const TinyModel model({.head_dim = 32});
  for (const char* target : {"sm_75", "sm_80", "sm_86", "gfx90a", "gfx1030", "gfx1100"}) {
    CAPTURE(target);
    Recorder recorder;
    const auto error = error_of([&] { compile(model, target, recorder, 1, {}, DType::kFp8); });
    CHECK_THAT(error, Catch::Contains("no KV cache in fp8 on " + std::string(target)) &&
                          Catch::Contains("the target supports f16 or q8_0 or q4_0"));
    CHECK(error.find('\n') == std::string::npos);
  }
  // Heads of whole units.
  Recorder recorder;
  const auto narrow = error_of([&] { compile(TinyModel({.head_dim = 24}), "sm_90", recorder, 1, {}, DType::kFp8); });
  CHECK_THAT(narrow, Catch::Contains("fp8 for heads of 24 columns") && Catch::Contains("multiple of 16"));
  CHECK_THAT(error_of([&] {
               compile(TinyModel(FileImage{family_gguf(family_model("deepseek_v2"))}), "sm_90", recorder, 1, {},
                       DType::kFp8);
             }),
             Catch::Contains("no KV cache in fp8"));
}

TEST_CASE("gpu plan: a cache type that the model cannot have is refused in one line with the reason") {
  for (const auto type : {DType::kQ8_0, DType::kQ4_0}) {
    const std::string name(dtype_name(type));
    const auto refusal = [&](const TinyModel& model) {
      Recorder recorder;
      return error_of([&] { compile(model, "gfx1100", recorder, 1, {}, type); });
    };
    const auto narrow = refusal(TinyModel({.head_dim = 48}));
    CHECK_THAT(narrow, Catch::Contains(name + " for heads of 48 columns") && Catch::Contains("--kv-type f16"));
    CHECK(narrow.find('\n') == std::string::npos);
    for (const char* family : {"deepseek32", "deepseek_v2", "minimax_m3"}) {
      CAPTURE(family);
      CHECK_THAT(refusal(TinyModel(FileImage{family_gguf(family_model(family))})),
                 Catch::Contains("no KV cache in " + name) && Catch::Contains("--kv-type f16"));
    }
  }
}

}  // namespace forge::tests

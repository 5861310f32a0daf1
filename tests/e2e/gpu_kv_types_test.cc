// Types of the KV cache in programs for GPUs: bytes, launches, and which models and targets have them.

#include <array>
#include <catch2/catch.hpp>

#include "tests/e2e/family_models.h"
#include "tests/e2e/gpu_recorder.h"
#include "tests/support/error_of.h"

namespace forge::tests {

TEST_CASE("gpu plan: a q8_0 cache takes 17/32 of f16's bytes, a q4_0 one 9/32, and they cost no launch") {
  struct Type {
    DType dtype;
    int share;  ///< of f16's bytes, in 32nds
    const char* pool;
  };
  for (const std::int64_t head_dim : {32, 64}) {
    const TinyModel model({.dtype = DType::kQ8_0, .head_dim = head_dim, .biases = true});
    for (const char* target : {"gfx1100", "gfx90a", "sm_90"}) {
      Recorder half;
      const auto f16 = compile(model, target, half, 4);
      for (const auto& type : {Type{DType::kQ8_0, 17, ", KvQ8_0>"}, Type{DType::kQ4_0, 9, ", KvQ4_0>"}}) {
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

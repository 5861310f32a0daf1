// The whole pipeline on small models (GGUF, graph, passes, plan, executor), compared with the reference interpreter on
// the unoptimised graph.

#include <catch2/catch.hpp>

#include <numeric>

#include "tests/e2e/tiny_model.h"

using namespace forge;
using namespace forge::tests;

namespace {

/// Bound on the NMSE against the interpreter. Sources of error: f16 KV cache, and rounding of activations to BF16 or
/// int8.
double bound(DType dtype) {
  return meets_floats(dtype) ? 1e-6 : is_float(dtype) ? 5e-4 : 3e-3;
}

std::vector<std::int32_t> first_blocks(std::size_t count) {
  std::vector<std::int32_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

}  // namespace

TEST_CASE("every weight type gives the interpreter's logits, as one prefill and token by token") {
  for (const auto dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    const TinyModel model({.dtype = dtype, .tied = dtype != DType::kQ4_0});
    const auto ids = random_ids(70, model.file().vocab, 3);
    const auto reference = model.reference(model.portable().graph, ids, false);
    const auto executor = model.open();
    const auto prefill = run_alone(*executor, ids, 64, first_blocks(3));
    const auto decode = run_alone(*executor, ids, 1, first_blocks(3));
    INFO(dtype_name(dtype) << " nmse " << nmse(prefill, reference));
    CHECK(nmse(prefill, reference) < bound(dtype));
    CHECK(prefill == decode);
    if (!is_float(dtype)) continue;
    for (const auto& target : {target_of_floats(), std::string("cpu-generic")})
      CHECK(nmse(run_alone(*model.open(1, 4, {}, target), ids, 64, first_blocks(3)), reference) < 1e-6);
  }
}

TEST_CASE("K-quants, IQ and ternary types give the interpreter's logits") {
  for (const auto dtype : {DType::kQ5_1, DType::kQ2_K, DType::kQ4_K, DType::kQ6_K, DType::kIQ4_XS, DType::kIQ2_XS,
                           DType::kIQ3_S, DType::kIQ1_S, DType::kTQ1_0}) {
    const TinyModel model({.dtype = dtype, .width = 256, .ffn = 256, .heads = 4, .kv_heads = 2, .head_dim = 64});
    const auto ids = random_ids(20, model.file().vocab, 3);
    const auto reference = model.reference(model.portable().graph, ids, false);
    const auto executor = model.open();
    const auto prefill = run_alone(*executor, ids, 64, first_blocks(1));
    const auto decode = run_alone(*executor, ids, 1, first_blocks(1));
    INFO(dtype_name(dtype) << " nmse " << nmse(prefill, reference));
    CHECK(nmse(prefill, reference) < bound(dtype));
    CHECK(prefill == decode);
  }
}

TEST_CASE("shapes that do not divide evenly: odd heads, biases, untied head, RoPE factors, scaled RoPE") {
  const TinyShape shapes[] = {
      {.width = 60, .ffn = 100, .heads = 3, .kv_heads = 1, .head_dim = 20, .vocab = 33, .tied = false},
      {.dtype = DType::kQ8_0,
       .width = 96,
       .ffn = 160,
       .heads = 9,
       .kv_heads = 3,
       .head_dim = 32,
       .vocab = 51,
       .biases = true},
      {.dtype = DType::kQ4_1, .width = 128, .ffn = 96, .heads = 2, .kv_heads = 2, .head_dim = 80, .rope_freqs = true},
      {.dtype = DType::kF16, .heads = 6, .kv_heads = 1, .head_dim = 8, .biases = true, .rope_scaling = "linear"},
      {.dtype = DType::kBF16, .head_dim = 128, .rope_scaling = "yarn"},
  };
  for (const auto& shape : shapes) {
    const TinyModel model(shape, 7);
    const auto ids = random_ids(45, model.file().vocab, 5);
    const auto reference = model.reference(model.portable().graph, ids, false);
    const auto executor = model.open();
    const auto logits = run_alone(*executor, ids, 64, first_blocks(2));
    INFO("width " << shape.width << " nmse " << nmse(logits, reference));
    CHECK(nmse(logits, reference) < bound(shape.dtype));
    CHECK(logits == run_alone(*executor, ids, 1, first_blocks(2)));
    if (is_float(shape.dtype))
      CHECK(nmse(run_alone(*model.open(1, 4, {}, target_of_floats()), ids, 64, first_blocks(2)), reference) < 1e-6);
  }
}

TEST_CASE("a CPU target refuses attention options that it does not have") {
  const TinyModel model(TinyShape{});
  const auto refuse = [&](const char* attention) {
    codegen::compile_program(model.portable().graph, model.file(), "cpu-generic",
                             {.context = 64, .attention = attention});
  };
  for (const char* none : {"rows", "tiles,split"})
    CHECK_THROWS_WITH(refuse(none), Catch::Contains("only one attention kernel for prefill"));
  CHECK_THROWS_WITH(refuse("sideways"), Catch::Contains("is unknown"));
}

TEST_CASE("decode gives the same bits with and without splitting a token's context over threads") {
  const TinyModel model({.width = 128, .heads = 4, .kv_heads = 2, .head_dim = 32});
  const auto ids = random_ids(330, model.file().vocab, 11);  // more than one attention chunk of 256
  const auto blocks = first_blocks(11);
  const auto expected = run_alone(*model.open(), ids, 64, blocks);
  for (const auto& [attention, reason] :
       {std::pair("split", "KV split into chunks, as requested"),
        std::pair("whole", "one task per KV head and tile of queries, as requested")}) {
    CAPTURE(attention);
    std::shared_ptr<const plan::ProgramT> program =
        codegen::compile_program(model.portable().graph, model.file(), codegen::host_target(),
                                 {.context = model.portable().info.context, .batch_max = 8, .attention = attention});
    for (const auto& step : program->variants.front()->steps)
      if (step->label.starts_with("attention")) CHECK(step->reason == reason);
    runtime::SpanWeightSource source("tiny", model.bytes());
    runtime::CpuExecutor executor(program, source, {.threads = 2});
    CHECK(run_alone(executor, ids, 1, blocks) == expected);
    CHECK(run_alone(executor, ids, 64, blocks) == expected);
  }
}

TEST_CASE("a q8_0 KV cache takes 17/32 of f16's bytes, with a small error") {
  const TinyModel model({.width = 128, .heads = 4, .kv_heads = 2, .head_dim = 32});
  const auto ids = random_ids(330, model.file().vocab, 11);  // more than one attention chunk of 256
  const auto blocks = first_blocks(11);
  const auto exact = run_alone(*model.open(), ids, 64, blocks);
  const auto open = [&](std::size_t threads) {
    return model.open(threads, 4, {}, codegen::host_target(), DType::kQ8_0);
  };
  const auto one = open(1);
  CHECK(one->memory_requirements().kv * 32 == model.open()->memory_requirements().kv * 17);
  const auto logits = run_alone(*one, ids, 64, blocks);
  // Quantisation step: 1/127 of the largest of 32 columns, which for normally distributed values is 0.017 standard
  // deviations. Rounding to it gives an NMSE of 0.017^2 / 12 = 2.5e-5 in each of K and V. The logits of this model have
  // 16 times that; the bound is 40 times.
  INFO("nmse " << nmse(logits, exact));
  CHECK(nmse(logits, exact) < 1e-3);
  CHECK(nmse(logits, exact) > 1e-9);
  for (const std::size_t chunk : {1, 7, 50}) CHECK(run_alone(*open(2), ids, chunk, blocks) == logits);
}

TEST_CASE("heads that are not a multiple of a Q8_0 block are refused a q8_0 KV cache") {
  const TinyModel model({.head_dim = 48});
  CHECK_THROWS_WITH(model.open(1, 1, {}, codegen::host_target(), DType::kQ8_0),
                    Catch::Contains("48 columns") && Catch::Contains("--kv-type f16"));
}

TEST_CASE("a result does not depend on chunking, thread count, or CPU class with FMA") {
  const TinyModel model({.dtype = DType::kQ4_1, .ffn = 192});
  const auto ids = random_ids(330, model.file().vocab, 11);  // more than one attention chunk of 256
  const auto blocks = first_blocks(11);
  const auto expected = run_alone(*model.open(), ids, 64, blocks);
  for (const std::size_t chunk : {1, 7, 33, 50}) {
    INFO("chunk " << chunk);
    CHECK(run_alone(*model.open(), ids, chunk, blocks) == expected);
    CHECK(run_alone(*model.open(2), ids, chunk, blocks) == expected);
  }
  for (const auto cpu_class : cpu::all_classes()) {
    if (cpu_class == cpu::CpuClass::kGeneric || !cpu::runs_here(cpu_class)) continue;
    const auto target = "cpu-" + std::string(cpu::name(cpu_class));
    INFO(target);
    CHECK(run_alone(*model.open(2, 4, {}, target), ids, 64, blocks) == expected);
  }
  CHECK(nmse(run_alone(*model.open(2, 4, {}, "cpu-generic"), ids, 64, blocks), expected) < 1e-4);
}

TEST_CASE("two interleaved sequences that share a prefix block give bit for bit the results of single runs") {
  for (const auto dtype : {DType::kQ4_1, DType::kF16}) {
    const TinyModel model({.dtype = dtype});
    const auto shared = random_ids(32, model.file().vocab, 1);
    auto first = shared, second = shared;
    for (const auto id : random_ids(40, model.file().vocab, 2)) first.push_back(id);
    for (const auto id : random_ids(9, model.file().vocab, 4)) second.push_back(id);
    const auto vocab = static_cast<std::size_t>(model.file().vocab);
    const auto alone_first = run_alone(*model.open(), first, 64, {5, 9, 2});
    const auto alone_second = run_alone(*model.open(), second, 64, {7, 1});

    const auto executor = model.open(2);
    run_alone(*executor, shared, 32, {4});  // writes the block that both tables refer to
    // Block tables of both sequences, three entries each; block 4 is shared.
    const std::vector<std::int32_t> tables = {4, 8, 3, 4, 6, 0};
    for (std::size_t i = 32; i < first.size(); ++i) {
      const bool both = i < second.size();
      std::vector<std::int32_t> ids{first[i]}, positions{static_cast<std::int32_t>(i)}, sequence{0}, rows{0},
          length{static_cast<std::int32_t>(i + 1)};
      if (both) {
        ids.push_back(second[i]);
        positions.push_back(static_cast<std::int32_t>(i));
        sequence.push_back(1);
        rows.push_back(1);
        length.push_back(static_cast<std::int32_t>(i + 1));
      }
      const auto out = executor->forward({.ids = ids,
                                          .positions = positions,
                                          .sequence = sequence,
                                          .rows = rows,
                                          .kv_length = length,
                                          .block_table = tables,
                                          .table_stride = 3});
      REQUIRE(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(vocab),
                         alone_first.begin() + static_cast<std::ptrdiff_t>(i * vocab)));
      if (both)
        REQUIRE(std::equal(out.begin() + static_cast<std::ptrdiff_t>(vocab), out.end(),
                           alone_second.begin() + static_cast<std::ptrdiff_t>(i * vocab)));
    }
  }
}

TEST_CASE("a sequence that continues from a copied block gives bit for bit the result of a single run") {
  for (const auto dtype : {DType::kQ4_1, DType::kF32}) {
    const TinyModel model({.dtype = dtype});
    const auto vocab = static_cast<std::size_t>(model.file().vocab);
    const auto prompt = random_ids(45, model.file().vocab, 21);  // one full block and a partial one
    const std::int32_t ids[] = {1, 2};
    const auto out = after_copied_block(*model.open(), prompt, ids);
    for (std::size_t s = 0; s < 2; ++s) {
      auto ids_alone = prompt;
      ids_alone.push_back(ids[s]);
      const auto alone = run_alone(*model.open(), ids_alone, 64, {0, 1});
      CHECK(std::equal(alone.end() - static_cast<std::ptrdiff_t>(vocab), alone.end(),
                       out.begin() + static_cast<std::ptrdiff_t>(s * vocab)));
    }
  }
}

TEST_CASE("skipping any optional pass keeps the logits and costs steps or bytes") {
  const auto cost = [](const runtime::CpuExecutor& executor) {
    std::int64_t bytes = 0;
    for (const auto& step : executor.variants()[0].steps) bytes += step.weight_bytes + step.activation_bytes;
    return std::pair(executor.variants()[0].steps.size(), bytes);
  };
  // Where q, k and v have one type, one matmul makes k and v, and their store stays one.
  for (const bool mixed : {false, true}) {
    TinyShape shape{.dtype = DType::kQ8_0};
    if (mixed) shape.types = {{"attn_v", DType::kQ4_0}};
    const TinyModel model(shape);
    const auto ids = random_ids(40, model.file().vocab, 6);
    const auto full = model.open();
    const auto expected = run_alone(*full, ids, 64, first_blocks(2));
    for (const auto& pass : passes::pipeline_passes()) {
      if (!pass.optional) continue;
      const auto executor = model.open(1, 4, {std::string(pass.name)});
      INFO(pass.name << ": " << cost(*executor).first << " steps instead of " << cost(*full).first);
      CHECK(nmse(run_alone(*executor, ids, 64, first_blocks(2)), expected) < 1e-3);
      const bool costs = cost(*executor).first > cost(*full).first || cost(*executor).second > cost(*full).second;
      CHECK(costs == (mixed || pass.name != "split_kv_store"));
    }
  }
}

TEST_CASE("a dense layer is five steps, and the arena is as small as its largest live set") {
  const TinyModel model({.dtype = DType::kQ4_0, .layers = 4});
  const auto executor = model.open();
  for (const auto& variant : executor->variants()) {
    std::vector<int> steps(4);
    for (const auto& step : variant.steps)
      if (step.layer >= 0) ++steps[static_cast<std::size_t>(step.layer)];
    for (const auto count : steps) CHECK(count == 5);
  }
  for (const auto& variant : executor->program().variants) CHECK(variant->arena_bytes == variant->arena_bound_bytes);
}

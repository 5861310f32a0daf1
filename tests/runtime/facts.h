#pragma once
// Target facts for plans that tests write by hand: a CPU-like target (on_host) or a GPU-like one that samples.

#include <memory>

#include "kernels/quant/dtype.h"
#include "runtime/plan/plan_generated.h"

namespace forge::test {

/// Valid facts: an F16 KV cache, prompts fed in steps of 64 tokens; a host gives hidden rows, a GPU samples.
inline std::unique_ptr<plan::TargetFactsT> some_facts(bool on_host) {
  auto facts = std::make_unique<plan::TargetFactsT>();
  facts->on_host = on_host;
  facts->api = on_host ? "CPU" : "HIP";
  facts->samples = !on_host;
  facts->prompt_tokens = 64;
  facts->kv_types = {static_cast<std::uint8_t>(DType::kF16)};
  facts->gives_hidden = on_host;
  return facts;
}

}  // namespace forge::test

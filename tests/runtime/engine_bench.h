#pragma once
// The engine's core on a fake device, with a simulated clock.

#include <catch2/catch.hpp>
#include <memory>
#include <utility>

#include "runtime/engine/engine_core.h"
#include "tests/runtime/fake_executor.h"

namespace forge::test {

struct EngineBench {
  explicit EngineBench(const FakeShape& shape = {}, const engine::EngineOptions& options = {})
      : executor(shape), core(executor, options, [this] { return now; }) {}
  EngineBench(const EngineBench&) = delete;  // the core's clock is this object's
  EngineBench& operator=(const EngineBench&) = delete;

  std::shared_ptr<engine::Stream> submit(engine::Request request) {
    auto prepared = core.prepare(std::move(request));
    REQUIRE(prepared.has_value());
    auto stream = engine::EngineCore::stream_of(*prepared);
    REQUIRE(core.submit(*std::move(prepared)).has_value());
    return stream;
  }

  engine::Time now = std::chrono::seconds(100);
  FakeExecutor executor;
  engine::EngineCore core;
};

}  // namespace forge::test

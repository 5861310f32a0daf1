// A program linked with the runtime only: no compiler, passes, code generation or model loader. It opens a ready plan
// and its model's bytes, feeds the ids and prints the greedy next id after each. Programs for GPUs run on the first
// suitable card. replay_only_test.cc runs it and checks its symbols.
// usage: replay_only PLAN MODEL ID...

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "runtime/cpu/executor.h"
#include "runtime/gpu/executor.h"
#include "runtime/plan/plan_file.h"
#include "support/error.h"

namespace {

/// The first card of the target, over all drivers that open.
forge::driver::Device card_for(const std::string& target) {
  for (const auto vendor : forge::driver::kVendors) try {
      const auto driver = forge::driver::Driver::open(vendor);
      for (const auto& info : driver.devices())
        if (info.target == target) return driver.device(info.ordinal);
    } catch (const forge::Error&) {
      continue;
    }
  throw forge::Error(forge::ErrorCode::kDevice, "there is no card for " + target);
}

std::unique_ptr<forge::runtime::Executor> open(std::shared_ptr<const forge::plan::ProgramT> program,
                                               forge::runtime::WeightSource& source) {
  if (forge::runtime::facts_of(*program).on_host)
    return std::make_unique<forge::runtime::CpuExecutor>(std::move(program), source,
                                                         forge::runtime::ExecutorOptions{.threads = 1});
  return std::make_unique<forge::runtime::GpuExecutor>(program, source, card_for(program->target),
                                                       forge::runtime::ExecutorOptions{});
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) return 2;
  auto plan = forge::plan::read_plan(argv[1]);
  std::ifstream file(argv[2], std::ios::binary);
  const std::vector<char> model((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  forge::runtime::SpanWeightSource source(argv[2], std::as_bytes(std::span(model)));
  const auto opened = open(std::shared_ptr<forge::plan::ProgramT>(std::move(plan.programs.at(0))), source);
  auto& executor = *opened;
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(executor.kv_blocks()));
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::int32_t>(i);
  for (int i = 3; i < argc; ++i) {
    const std::int32_t id[] = {std::atoi(argv[i])}, position[] = {i - 3}, zero[] = {0}, length[] = {i - 2};
    const auto logits = executor.forward({.ids = id,
                                          .positions = position,
                                          .sequence = zero,
                                          .rows = zero,
                                          .kv_length = length,
                                          .block_table = blocks,
                                          .table_stride = blocks.size()});
    std::printf("%zu\n", static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return 0;
} catch (const forge::Error& error) {
  std::fprintf(stderr, "%s\n", error.line().c_str());
  return error.exit_status();
}

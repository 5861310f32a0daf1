// Checks on a real GPU that the self-test detects faults. Faults are injected into the sources of its kernels, which
// the GPU then runs:
//   self_test_check [--device hip:0
// cuda:0] [--hang]
// Each line names a fault and what the self-test found; the last line is `N passed, N failed`. --hang ends with a
// kernel that never finishes, which keeps the GPU busy until this process has exited.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "codegen/gpu/compile/compile_service.h"
#include "session/device.h"
#include "session/self_test/self_test.h"
#include "support/error.h"
#include "tests/device/verdicts.h"
#include "tests/support/self_test_faults.h"
#include "tools/cli/entry.h"
#include "tools/cli/options.h"

namespace forge::tools {
namespace {

using Results = std::vector<session::SelfTestResult>;

struct Card {
  session::DeviceChoice choice;
  codegen::CompileService service{{.cache = plan::CacheOptions::from_environment()}};

  /// Runs the self-test. `kernel`: run only this primitive; empty: all.
  Results test(codegen::KernelCompiler& compiler, const std::string& kernel, bool model) {
    Results results;
    session::self_test(*choice.gpu,
                       {.target = choice.target,
                        .compiler = &compiler,
                        .limit = std::chrono::milliseconds(5000),
                        .kernel = kernel,
                        .model = model},
                       {.stage = [](std::string_view) {},
                        .result = [&](const session::SelfTestResult& one) { results.push_back(one); }});
    return results;
  }
  Results test_with(std::string_view text, const std::string& kernel, bool model) {
    tests::PlantingCompiler faulty(service, [&](std::string_view) { return std::string(text); });
    return test(faulty, kernel, model);
  }
};

const session::SelfTestResult* find(const Results& results, std::string_view name) {
  const auto found = std::ranges::find(results, name, &session::SelfTestResult::name);
  return found == results.end() ? nullptr : &*found;
}

void check_sound(Card& card, Verdicts& verdicts) {
  const auto begin = std::chrono::steady_clock::now();
  const auto results = card.test(card.service, {}, true);
  const double seconds = seconds_since(begin);
  for (const auto& one : results)
    if (!one.ok || one.name.starts_with("model: "))
      verdicts.add(one.ok,
                   fmt::format("{}: {} ({:.1f} ms)", one.name, one.detail.empty() ? "right" : one.detail, one.ms));
  verdicts.add(std::ranges::all_of(results, &session::SelfTestResult::ok),
               fmt::format("{} results of a sound card in {:.1f} s", results.size(), seconds));
}

void check_faults(Card& card, Verdicts& verdicts) {
  for (const auto& fault : tests::kPlantedFaults) {
    const auto results = card.test_with(fault.text, std::string(fault.kernel), false);
    const auto* found = find(results, fault.found);
    const bool planted = found != nullptr && found->detail.find("cannot compile") == std::string::npos;
    verdicts.add(planted && !found->ok, fmt::format("planted in {}: {}: {}", fault.kernel, fault.found,
                                                    found == nullptr ? "no such result" : found->detail));
  }
  const auto results = card.test_with(tests::kSumOfHalfTheLanes, "chain", true);
  for (const char* name : {"model: prefill", "model: decode"}) {
    const auto* found = find(results, name);
    verdicts.add(found != nullptr && !found->ok, fmt::format("a sum of half the lanes: {}: {}", name,
                                                             found == nullptr ? "no such result" : found->detail));
  }
}

void check_hang(Card& card, Verdicts& verdicts) {
  const auto begin = std::chrono::steady_clock::now();
  bool stuck = false;
  try {
    (void)card.test_with("#define wait_copies() for (;;) asm volatile(\"\")\n", "memory", false);
  } catch (const session::DeviceIsStuck&) {
    stuck = true;
  }
  const double seconds = seconds_since(begin);
  verdicts.add(stuck && seconds < 30, fmt::format("a kernel that never ends is given up after {:.1f} s", seconds));
}

int check(int argc, char** argv) {
  std::string device = "auto";
  bool hang = false;
  Options options("self_test_check", "Plants faults in the self-test of a card and looks whether they are found.");
  options.text("--device", device, "hip:N|cuda:N", "the card; default: the best one")
      .flag("--hang", hang, "end with a kernel that never does; it holds the card until this process is gone");
  if (!options.parse(argc, argv)) return 0;
  Card card{.choice = session::choose_device(device)};
  if (!card.choice.gpu)
    throw Error(ErrorCode::kDevice, "there is no card to check", card.choice.cpu_reason, "name one with --device");
  Output output;
  Verdicts verdicts(output);
  check_sound(card, verdicts);
  check_faults(card, verdicts);
  if (hang) check_hang(card, verdicts);
  const int status = verdicts.end();
  if (hang) std::_Exit(status);  // a normal exit would wait for the kernel
  return status;
}

}  // namespace
}  // namespace forge::tools

int main(int argc, char** argv) {
  return forge::tools::run_tool([&] { return forge::tools::check(argc, argv); });
}

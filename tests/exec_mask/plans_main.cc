// Compiles the kernels of small models' plans for every AMD target with every installed compiler that supports it, and
// checks that no cross-lane instruction is reached while lanes are off (exec_mask.h) and that denormals are kept
// (float_mode.h). Two more kernels check the check: one tempts the compiler to move operations, and one has an injected
// fault that must be found. Ends with 'N passed, M failed, K skipped', where a case is a target and a compiler; targets
// without a compiler are named and skipped. Exit status 77: all are skipped.
//
//   exec_mask_plans HELPER [TARGET,...]      HELPER: forge-kernel-compiler; $FORGE_CACHE_DIR: the kernel cache

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "codegen/gpu/compile/code_object.h"
#include "codegen/gpu/compile/compile_service.h"
#include "codegen/program_output.h"
#include "support/error.h"
#include "support/os/cpus.h"
#include "tests/exec_mask/exec_mask.h"
#include "tests/exec_mask/float_mode.h"
#include "tests/exec_mask/plan_kernels.h"
#include "tests/support/temp_dir.h"

namespace forge::tests {
namespace {

using namespace forge::codegen;

/// Targets of GPUs on the market, at least one for each instruction set.
constexpr std::string_view kTargets =
    "gfx900,gfx906,gfx90a,gfx942,gfx1010,gfx1030,gfx1100,gfx1102,gfx1103,gfx1150,gfx1151,gfx1200,gfx1201";

struct Case {
  const GpuTarget* target;
  InstalledCompiler compiler;
  std::size_t kernels = 0;
  MaskReport report;
  std::vector<std::string> failures;
};

bool knows(const InstalledCompiler& compiler, const GpuTarget& target) {
  try {
    static_cast<void>(choose_compiler({.list = {compiler}, .problems = {}}, target));
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Disassembles all kernels with one run of the disassembler, because starting it takes longer than its work.
std::optional<std::string> list(const std::vector<CompiledKernel>& kernels) {
  const TempDir folder;
  std::vector<std::string> command{"", "-d"};
  for (const CompiledKernel& kernel : kernels)
    command.push_back(folder.write(fmt::format("{}.o", command.size()),
                                   {reinterpret_cast<const char*>(kernel.code.data()), kernel.code.size()}));
  for (const char* tool : {"llvm-objdump-19", "llvm-objdump", "/opt/rocm/llvm/bin/llvm-objdump"}) {
    command[0] = tool;
    if (auto output = output_of(command); output.text) return std::move(output.text);
  }
  return std::nullopt;
}

/// Checks one target with one compiler, in one process at a time.
class Runner {
 public:
  Runner(Case& job, const std::filesystem::path& helper, const std::filesystem::path& cache) : job_(job) {
    CompileServiceOptions options;
    options.cache.directory = cache;
    options.helper = helper;
    options.jobs = 1;
    options.timeout = std::chrono::minutes(10);
    options.note = [&](const std::string& line) { job_.failures.push_back(line); };
    if (job.compiler.kind == CompilerKind::kClang) {
      options.clang = job.compiler.at;
      options.prefer_clang = true;
    }
    service_ = std::make_unique<CompileService>(std::move(options));
  }

  void run() {
    try {
      auto sources = plan_kernels(*job_.target);
      job_.kernels = sources.size();
      sources.push_back(used_behind_branch(*job_.target));
      sources.push_back(planted_kernel(*job_.target));
      const auto kernels = service_->compile(std::string(job_.target->name), sources);
      check_classes(sources);
      const auto text = list(kernels);
      if (!text) return fail("nothing here disassembles it: install llvm-19");
      const auto functions = parse_listing(*text);
      check_listing(functions, sources.size());
      for (std::size_t i = 0; i < std::min(functions.size(), kernels.size()); ++i)
        if (auto why = float_mode_error(kernels[i].code, functions[i]); !why.empty())
          fail(fmt::format("{}: {}", functions[i].name, why));
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

 private:
  void fail(std::string why) { job_.failures.push_back(std::move(why)); }

  void check_classes(const std::vector<KernelSource>& sources) {
    for (const std::string& name : kernel_classes(*job_.target))
      if (std::ranges::none_of(sources, [&](const auto& one) { return one.entry.starts_with(name); }))
        fail("no kernel is called " + name);
  }
  void check_listing(const std::vector<Function>& functions, std::size_t kernels) {
    job_.report = check_masks(functions, job_.target->wave);
    auto& findings = job_.report.findings;
    if (job_.report.kernels != static_cast<int>(kernels))
      fail(fmt::format("{} functions in {} code objects", job_.report.kernels, kernels));
    if (std::erase_if(findings, [](const auto& one) { return one.kernel == "planted"; }) == 0)
      fail("the planted kernel is not found");
    for (const auto& finding : findings) fail(line_of(finding));
    std::vector<const char*> kinds{"dpp", "swizzle", "bpermute"};
    if (job_.target->matrix != MatrixKind::kNone) kinds.push_back("matrix");
    for (const char* kind : kinds)
      if (job_.report.cross_lane[kind] == 0) fail(fmt::format("no {} instruction was seen", kind));
  }

  Case& job_;
  std::unique_ptr<CompileService> service_;
};

std::vector<Case> cases_of(std::string_view names, int& skipped) {
  const auto installed = find_compilers(driver::Vendor::kAmd);
  std::vector<Case> cases;
  while (!names.empty()) {
    const auto name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const GpuTarget* target = find_target(name);
    if (target == nullptr) throw std::runtime_error(fmt::format("there is no target {}", name));
    const auto before = cases.size();
    for (const auto& compiler : installed.list)
      if (knows(compiler, *target)) cases.push_back({target, compiler, 0, {}, {}});
    if (cases.size() > before) continue;
    ++skipped;
    fmt::print("skipped: {}: no compiler here knows it\n", name);
  }
  return cases;
}

void print(const Case& job) {
  std::string kinds;
  for (const auto& [kind, count] : job.report.cross_lane) kinds += fmt::format(", {} {}", count, kind);
  fmt::print("{} by {}: {} kernels{}{}\n", job.target->name, job.compiler.name, job.kernels, kinds,
             job.failures.empty() ? "" : ": FAILED");
  constexpr std::size_t kShown = 20;
  for (std::size_t i = 0; i < std::min(job.failures.size(), kShown); ++i) fmt::print("  {}\n", job.failures[i]);
  if (job.failures.size() > kShown) fmt::print("  and {} more\n", job.failures.size() - kShown);
  std::fflush(stdout);
}

int run(const std::filesystem::path& helper, std::string_view targets) {
  int skipped = 0;
  auto cases = cases_of(targets, skipped);
  if (!has_recurrent_models()) {
    ++skipped;
    fmt::print("skipped: kernels of recurrent state: reference data is absent\n");
  }
  const TempDir own;
  const char* cache = std::getenv("FORGE_CACHE_DIR");  // NOLINT(concurrency-mt-unsafe): no thread writes it
  const std::filesystem::path kept = cache != nullptr ? std::filesystem::path(cache) : own.path();
  std::atomic<std::size_t> next = 0;
  std::mutex printing;
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < std::max<std::size_t>(1, usable_cpus()); ++i)
      workers.emplace_back([&] {
        for (std::size_t at = next++; at < cases.size(); at = next++) {
          Runner(cases[at], helper, kept).run();
          const std::scoped_lock lock(printing);
          print(cases[at]);
        }
      });
  }
  std::size_t kernels = 0;
  std::set<std::string> compilers, names;
  for (const Case& job : cases) {
    kernels += job.kernels;
    compilers.insert(job.compiler.name);
    names.emplace(job.target->name);
  }
  const auto failed = std::ranges::count_if(cases, [](const Case& job) { return !job.failures.empty(); });
  fmt::print("{} kernels of {} targets by {}\n", kernels, names.size(), fmt::join(compilers, ", "));
  fmt::print("{} passed, {} failed, {} skipped\n", static_cast<std::ptrdiff_t>(cases.size()) - failed, failed, skipped);
  if (!cases.empty()) return failed > 0 ? 1 : 0;
  return skipped > 0 ? 77 : 1;
}

}  // namespace
}  // namespace forge::tests

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: exec_mask_plans HELPER [TARGET,...]\n");
    return 2;
  }
  try {
    return forge::tests::run(argv[1], argc > 2 ? std::string_view(argv[2]) : forge::tests::kTargets);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}

#include "codegen/gpu/compile/compilers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "runtime/driver/driver.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

namespace fs = std::filesystem;
using driver::Vendor;

/// The LLVM versions for which "clang-N" is looked up; the oldest is the first that has the builtins of the kernels.
constexpr int kLlvmNewest = 30, kLlvmOldest = 15;
/// The packages that messages recommend.
constexpr const char* kAmdPackages = "clang-19 and lld-19";

/// The dot-separated numbers after `mark` in `text`: {5, 2, 21153} for "libamdhip64.so.5.2.21153" and ".so.".
std::vector<int> numbers_after(std::string_view text, std::string_view mark) {
  std::vector<int> numbers;
  const auto at = text.find(mark);
  if (at == std::string_view::npos) return numbers;
  text.remove_prefix(at + mark.size());
  while (!text.empty()) {
    int number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failed != std::errc{}) break;
    numbers.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.starts_with('.')) break;
    text.remove_prefix(1);
  }
  return numbers;
}

int version_of(const std::vector<int>& numbers) {
  return numbers.empty() ? 0 : 100 * numbers[0] + (numbers.size() > 1 ? numbers[1] : 0);
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 100, version % 100);
}

fs::path real_path(const fs::path& path) {
  std::error_code failed;
  fs::path real = fs::canonical(path, failed);
  return failed ? path : real;
}

/// Adds hipRTC or NVRTC, if its library loads. hipRTC's version function returns 9.0 in all releases, so the version is
/// taken from its file name: libamdhip64.so.5.2.21153, libhiprtc.so.6.4.43483.
void add_library(InstalledCompilers& found, Vendor vendor) {
  const bool amd = vendor == Vendor::kAmd;
  try {
    const auto compiler = driver::RuntimeCompiler::open(vendor);
    InstalledCompiler row{.kind = amd ? CompilerKind::kHiprtc : CompilerKind::kNvrtc,
                          .at = real_path(compiler.library())};
    const auto numbers =
        amd ? numbers_after(row.at.filename().native(), ".so.") : numbers_after("v" + compiler.version(), "v");
    row.version = numbers.size() < 2 ? 0 : version_of(numbers);
    row.name = fmt::format("{} {}", amd ? "hipRTC" : "NVRTC",
                           numbers.empty() ? "?" : fmt::format("{}", fmt::join(numbers, ".")));
    found.list.push_back(std::move(row));
  } catch (const Error& error) {
    found.problems.push_back(error.line());
  }
}

/// A clang, if it and an lld beside it are executable. The version is taken from its real path: /opt/rocm-6.4.1/...,
/// /usr/lib/llvm-19/bin/clang, .../clang-19.
std::optional<InstalledCompiler> clang_at(const fs::path& path) {
  const fs::path real = real_path(path);
  const auto runs = [](const fs::path& program) { return access(program.c_str(), X_OK) == 0; };
  if (!runs(real) || !(runs(real.parent_path() / "ld.lld") || runs(real.parent_path() / "lld"))) return std::nullopt;
  InstalledCompiler row{.kind = CompilerKind::kClang, .at = real};
  if (const auto rocm = numbers_after(real.native(), "/rocm-"); rocm.size() >= 2) {
    row.of_rocm = true;
    row.version = version_of(rocm);
    row.name = fmt::format("clang of ROCm {}", version_text(row.version));
    return row;
  }
  auto numbers = numbers_after(real.native(), "/llvm-");
  if (numbers.empty()) numbers = numbers_after(real.filename().native(), "clang-");
  row.version = numbers.empty() ? 0 : numbers[0];
  row.name = row.version == 0 ? "clang" : fmt::format("clang {}", row.version);
  return row;
}

/// ROCm's clangs in /opt, newest first.
std::vector<fs::path> rocm_clangs() {
  std::vector<fs::path> paths;
  std::error_code failed;
  for (fs::directory_iterator it("/opt", failed), end; !failed && it != end; it.increment(failed))
    if (it->path().filename().native().starts_with("rocm")) paths.push_back(it->path() / "llvm/bin/clang");
  std::ranges::sort(paths, [](const fs::path& a, const fs::path& b) {
    return numbers_after(a.native(), "/rocm-") > numbers_after(b.native(), "/rocm-");
  });
  return paths;
}

/// Candidates in $PATH: clang-30 to clang-15, then clang.
std::vector<fs::path> path_clangs() {
  const char* variable = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): read at start-up
  std::string_view folders = variable == nullptr ? "/usr/bin" : variable;
  std::vector<fs::path> places;
  while (!folders.empty()) {
    const auto end = std::min(folders.find(':'), folders.size());
    if (end > 0) places.emplace_back(folders.substr(0, end));
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  std::vector<fs::path> paths;
  for (int version = kLlvmNewest; version >= kLlvmOldest; --version)
    for (const fs::path& place : places) paths.push_back(place / fmt::format("clang-{}", version));
  for (const fs::path& place : places) paths.push_back(place / "clang");
  return paths;
}

/// Adds `wanted`, or if that is empty all clangs that can be used; each real path once.
void add_clangs(InstalledCompilers& found, const fs::path& wanted) {
  std::vector<fs::path> paths{wanted};
  if (wanted.empty()) {
    paths = rocm_clangs();
    std::ranges::copy(path_clangs(), std::back_inserter(paths));
  }
  std::set<fs::path> seen;
  for (const fs::path& path : paths) {
    auto row = clang_at(path);
    if (row && seen.insert(row->at).second) found.list.push_back(std::move(*row));
  }
  if (!wanted.empty() && seen.empty())
    found.problems.push_back(
        fmt::format("{} is no clang that can be run with lld beside it", printable(wanted.native(), 200)));
}

/// "" if the compiler supports the target, else the reason why not.
std::string why_unsupported(const InstalledCompiler& compiler, const GpuTarget& target) {
  const bool llvm = compiler.kind == CompilerKind::kClang && !compiler.of_rocm;
  const int since = llvm ? target.clang_since : target.rtc_since;
  if (compiler.version == 0) return {};
  const auto text = [&](int version) { return llvm ? std::to_string(version) : version_text(version); };
  if (compiler.version < since) return fmt::format("{} does not know it, {} would", compiler.name, text(since));
  if (target.rtc_until != 0 && compiler.version > target.rtc_until)
    return fmt::format("{} no longer knows it, {} did", compiler.name, text(target.rtc_until));
  return {};
}

}  // namespace

InstalledCompilers find_compilers(Vendor vendor, const fs::path& clang) {
  InstalledCompilers found;
  add_library(found, vendor);
  if (vendor == Vendor::kAmd) add_clangs(found, clang);
  return found;
}

InstalledCompiler choose_compiler(const InstalledCompilers& installed, const GpuTarget& target) {
  std::vector<std::string> reasons = installed.problems;
  for (const InstalledCompiler& compiler : installed.list) {
    std::string reason = why_unsupported(compiler, target);
    if (reason.empty()) return compiler;
    reasons.push_back(std::move(reason));
  }
  std::string fix;
  if (target.vendor == Vendor::kNvidia) {
    fix = fmt::format(
        "install NVRTC {} from NVIDIA's Debian repository",
        target.rtc_until != 0 ? version_text(target.rtc_until) : version_text(target.rtc_since) + " or later");
  } else if (target.clang_since <= 19) {
    fix = fmt::format("install {}", kAmdPackages);
  } else {
    fix = fmt::format("install ROCm {} or later, or clang and lld {}", version_text(target.rtc_since),
                      target.clang_since);
  }
  throw Error(ErrorCode::kDevice, fmt::format("no compiler here makes code for {}", target.name),
              reasons.empty() ? "none is installed" : fmt::format("{}", fmt::join(reasons, "; ")), std::move(fix));
}

std::vector<std::string> compile_options(CompilerKind kind, const GpuTarget& target) {
  switch (kind) {
    case CompilerKind::kNvrtc:
      // Functions without an attribute (constexpr functions, lambdas) are device functions.
      return {fmt::format("--gpu-architecture={}", target.name), "-std=c++20", "--fmad=false",
              "--device-as-default-execution-space"};
    case CompilerKind::kHiprtc:
      return {fmt::format("--offload-arch={}", target.name), "-std=c++20", "-O3", "-ffp-contract=off"};
    case CompilerKind::kClang:
      break;
  }
  return {"-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", fmt::format("--offload-arch={}", target.name),
          // Sources are free-standing: no headers or libraries of ROCm or the host are needed.
          "-nogpuinc", "-nogpulib", "-nostdinc", "-nostdinc++", "--no-default-config", "-std=c++20", "-O3",
          "-ffp-contract=off"};
}

std::string compiler_identity(const InstalledCompiler& compiler) {
  struct stat status{};
  if (::stat(compiler.at.c_str(), &status) != 0) return compiler.name + " " + compiler.at.native();
  return fmt::format("{} {} {} {}.{}", compiler.name, compiler.at.native(), status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

}  // namespace forge::codegen

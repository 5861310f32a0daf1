// The compile service's guarantees: the kernel cache and its eviction, refused targets, compiler selection, and
// failures that leave a log and the source for inspection.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "codegen/gpu/compile/compile_service.h"
#include "support/error.h"
#include "tests/codegen/gpu/kernels.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace forge::codegen::tests {
namespace {

namespace fs = std::filesystem;
using forge::tests::TempDir;

/// A compile service with its own cache, and the notes that it printed.
struct Bench {
  explicit Bench(const fs::path& cache) {
    options.cache.directory = cache;
    options.helper = FORGE_HELPER;
    options.jobs = 2;
    options.note = [this](const std::string& line) { notes.push_back(line); };
  }
  CompileService service() { return CompileService(options); }

  CompileServiceOptions options;
  std::vector<std::string> notes;
};

/// A target that this machine can compile for. Null, with the case skipped, if there is none.
const GpuTarget* any_target() {
  for (const char* name : {"gfx1030", "gfx942", "sm_90"})
    if (const GpuTarget* target = find_target(name); not_compilable(*target).empty()) return target;
  forge::tests::skip_case("no compiler for any GPU is here");
  return nullptr;
}

std::string refusal(const std::function<void()>& action, ErrorCode code = ErrorCode::kDevice) {
  return forge::tests::error_of(action, code);
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int mode_of(const fs::path& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 ? static_cast<int>(status.st_mode & 0777) : -1;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

InstalledCompiler hiprtc(int version) {
  return {.kind = CompilerKind::kHiprtc,
          .name = fmt::format("hipRTC {}.{}", version / 100, version % 100),
          .version = version};
}
InstalledCompiler clang(int version) {
  return {.kind = CompilerKind::kClang, .name = fmt::format("clang {}", version), .version = version};
}
InstalledCompiler nvrtc(int version) {
  return {.kind = CompilerKind::kNvrtc,
          .name = fmt::format("NVRTC {}.{}", version / 100, version % 100),
          .version = version};
}

}  // namespace

TEST_CASE("a second compilation is answered by the cache and starts no process") {
  const GpuTarget* target = any_target();
  if (target == nullptr) return;
  const TempDir dir;
  Bench bench(dir.file("deep/cache"));
  const std::vector<KernelSource> sources{dot_kernel(*target), scale_kernel(*target)};
  CompileService first = bench.service();
  const auto compiled = first.compile(std::string(target->name), sources);
  CHECK(first.statistics().compiled == 2);
  CHECK(first.statistics().helpers == 2);
  const fs::path entry = first.cache_path(std::string(target->name), sources[0]);
  CHECK(mode_of(entry) == 0600);
  CHECK(mode_of(entry.parent_path()) == 0700);

  bench.options.helper = "/nonexistent/helper";  // must not be needed
  CompileService second = bench.service();
  const auto cached = second.compile(std::string(target->name) + ":xnack-", sources);
  CHECK(second.statistics().cached == 2);
  CHECK(second.statistics().helpers == 0);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(cached[i].code == compiled[i].code);
    CHECK(cached[i].compiler == compiled[i].compiler);
    CHECK(cached[i].facts.registers == compiled[i].facts.registers);
    CHECK(cached[i].facts.occupancy == compiled[i].facts.occupancy);
  }
  CHECK(bench.notes.empty());
  // A different source text is a different kernel.
  KernelSource other = sources[0];
  other.text += "// changed\n";
  CHECK(second.cache_path(std::string(target->name), other) != entry);
  refusal([&] { second.compile(std::string(target->name), std::vector{other}); });
}

TEST_CASE("a damaged or foreign cache entry gives one note and a recompilation") {
  const GpuTarget* target = any_target();
  if (target == nullptr) return;
  const TempDir dir;
  Bench bench(dir.file("cache"));
  const std::string name(target->name);
  const std::vector<KernelSource> sources{dot_kernel(*target)};
  CompileService service = bench.service();
  const auto compiled = service.compile(name, sources);
  const fs::path entry = service.cache_path(name, sources[0]);
  const std::string good = contents(entry);

  std::string flipped = good;
  flipped[good.size() / 2] ^= 1;
  const KernelSource other = scale_kernel(*target);
  service.compile(name, std::vector{other});
  const std::string foreign = contents(service.cache_path(name, other));
  for (const std::string& bytes :
       {std::string(), std::string("x"), good.substr(0, good.size() - 1), good + "x", flipped, foreign}) {
    bench.notes.clear();
    std::ofstream(entry, std::ios::binary) << bytes;
    const auto again = service.compile(name, sources);
    CHECK(again[0].code == compiled[0].code);
    REQUIRE(bench.notes.size() == 1);
    CHECK(has(bench.notes[0], "is damaged"));
    CHECK(contents(entry) == good);
  }
  // Symbolic links are not followed.
  fs::rename(entry, dir.file("elsewhere"));
  fs::create_symlink(dir.file("elsewhere"), entry);
  bench.notes.clear();
  service.compile(name, sources);
  CHECK(bench.notes.size() == 1);
  CHECK(fs::symlink_status(entry).type() == fs::file_type::regular);
}

TEST_CASE("an unusable cache gives one note and no failure") {
  const GpuTarget* target = any_target();
  if (target == nullptr) return;
  const TempDir dir;
  const std::vector<KernelSource> sources{scale_kernel(*target)};
  const auto check = [&](const fs::path& cache, const char* reason) {
    Bench bench(cache);
    CompileService service = bench.service();
    for (int i = 0; i < 2; ++i) CHECK(service.compile(std::string(target->name), sources).size() == 1);
    CHECK(service.statistics().compiled == 2);
    REQUIRE(bench.notes.size() == 1);
    CHECK(has(bench.notes[0], reason));
  };
  check(dir.write("file", "x"), "Not a directory");
  fs::create_directories(dir.file("open/kernels"));
  fs::permissions(dir.file("open/kernels"), fs::perms::all);
  check(dir.file("open"), "every user can write");
  Bench none("");
  CompileService service = none.service();
  CHECK(service.compile(std::string(target->name), sources).size() == 1);
  CHECK(service.cache_path(std::string(target->name), sources[0]).empty());
  CHECK(none.notes.empty());
}

// Cache entries are code that a GPU runs, so other users must not be able to write them.
TEST_CASE("a new cache is accessible to its owner only, and files of killed processes are removed") {
  const TempDir dir;
  const auto root = dir.file("new/cache"), folder = root / "kernels";
  const auto before = ::umask(0);
  KernelCache cache({.directory = root, .bytes_max = 1 << 20}, [](const std::string&) {});
  const auto key = kernel_key({"a"});
  cache.store(key, {"some compiler", "code"});
  ::umask(before);
  for (const auto& path : {root, folder})
    CHECK((fs::status(path).permissions() & fs::perms::mask) == fs::perms::owner_all);
  const auto name = cache.entry_path(key).filename().native();
  const auto old = folder / ("." + name + ".0.tmp"), fresh = folder / ("." + name + ".1.tmp");
  for (const auto& path : {old, fresh}) std::ofstream(path) << "x";
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  cache.evict();
  CHECK_FALSE(fs::exists(old));
  CHECK(fs::exists(fresh));
  CHECK(cache.find(key));
}

TEST_CASE("a full cache evicts the least recently used kernels") {
  const TempDir dir;
  plan::CacheOptions options{.directory = dir.path(), .bytes_max = 8 * 10'000};  // kernels get an eighth of it
  std::vector<std::string> notes;
  KernelCache cache(options, [&](const std::string& line) { notes.push_back(line); });
  std::vector<std::string> keys;
  for (int i = 0; i < 6; ++i) {
    keys.push_back(kernel_key({std::to_string(i)}));
    cache.store(keys.back(), {"some compiler", std::string(3'000, 'x')});
    const timespec used[2] = {{1'000'000 + i, 0}, {1'000'000 + i, 0}};
    utimensat(AT_FDCWD, cache.entry_path(keys.back()).c_str(), used, 0);
  }
  CHECK(cache.find(keys[0]));  // now the most recently used
  cache.evict();
  for (int i = 0; i < 6; ++i)
    CHECK(fs::exists(cache.entry_path(keys[static_cast<std::size_t>(i)])) == (i == 0 || i >= 4));
  CHECK(notes.empty());
}

TEST_CASE("a source that does not compile gives one line and a log, and the source is kept") {
  const GpuTarget* target = any_target();
  if (target == nullptr) return;
  const TempDir dir;
  Bench bench(dir.file("cache"));
  bench.options.keep_dir = dir.file("kept");
  CompileService service = bench.service();
  KernelSource bad = scale_kernel(*target, "bad_one");
  bad.text += "int broken = undeclared_thing;\n";
  const std::vector<KernelSource> sources{dot_kernel(*target), bad};
  const std::string line = refusal([&] { service.compile(std::string(target->name), sources); });
  INFO(line);
  CHECK(has(line, "bad_one"));
  CHECK(has(line, std::string(target->name)));
  CHECK(has(line, "undeclared_thing"));
  const fs::path kept =
      dir.file("kept") / fmt::format("bad_one.{}.{}", target->name, target->name.starts_with("sm") ? "cu" : "hip");
  CHECK(has(line, kept.native()));
  CHECK(has(contents(kept), "undeclared_thing"));
  CHECK(has(contents(kept), "#line 1 \"kernels/gpu/prelude/prelude.h\""));
  const std::string log = contents(dir.file("kept") / fmt::format("bad_one.{}.log", target->name));
  CHECK(has(log, "undeclared_thing"));
  CHECK(has(log, "std=c++20"));
  REQUIRE_FALSE(bench.notes.empty());
  CHECK(has(bench.notes.back(), "undeclared_thing"));
  // Messages refer to the line of the source.
  CHECK(has(log, "bad_one"));
  // A failed compilation is not cached, and the service goes on.
  CHECK(refusal([&] { service.compile(std::string(target->name), sources); }) == line);
  CHECK(service.compile(std::string(target->name), std::vector{sources[0]}).size() == 1);
  // Without a directory of its own it uses the cache's.
  bench.options.keep_dir.clear();
  CompileService second = bench.service();
  CHECK(has(refusal([&] { second.compile(std::string(target->name), sources); }),
            (dir.file("cache") / "failed").native()));
}

TEST_CASE("a timeout, a crash and garbage give one line each") {
  const GpuTarget* target = any_target();
  if (target == nullptr) return;
  const TempDir dir;
  Bench bench("");
  bench.options.helper = FORGE_FAULTY_HELPER;
  bench.options.keep_dir = dir.path();
  const auto line = [&](const std::string& text) {
    CompileService service = bench.service();
    return refusal([&] { service.compile(std::string(target->name), std::vector{KernelSource{"k", text}}); });
  };
  bench.options.timeout = std::chrono::milliseconds(300);
  CHECK(has(line("hang"), "it did nothing for 0.3 s and was ended"));
  bench.options.timeout = std::chrono::minutes(5);  // starting a process may take long on a busy machine
  const std::string crash = line("abort");
  CHECK(has(crash, "cannot compile kernel k for " + std::string(target->name)));
  CHECK(has(crash, "LLVM ERROR: no such target"));
  CHECK(has(line("exit"), "its process ended with status 3"));
  CHECK(has(line("garbage"), "its process answered nonsense"));
  CHECK(has(line("code"), "is not a 64-bit ELF file"));
  CHECK(has(contents(dir.file(fmt::format("k.{}.log", target->name))), "is not a 64-bit ELF file"));
}

TEST_CASE("unknown targets are usage errors that list the known ones") {
  const TempDir dir;
  Bench bench(dir.file("cache"));
  CompileService service = bench.service();
  const std::string line = refusal([&] { service.compile("gfx9999", {}); }, ErrorCode::kUsage);
  CHECK(has(line, "gfx9999"));
  CHECK(has(line, "gfx1100"));
  refusal([&] { service.compile("\n\xff", {}); }, ErrorCode::kUsage);
}

TEST_CASE("the first compiler that supports a target is chosen") {
  const auto chosen = [](const InstalledCompilers& installed, const char* target) {
    return choose_compiler(installed, *find_target(target)).name;
  };
  const InstalledCompilers bookworm{{hiprtc(502), clang(19)}, {}};
  CHECK(chosen(bookworm, "gfx90a") == "hipRTC 5.2");
  CHECK(chosen(bookworm, "gfx1030") == "hipRTC 5.2");
  CHECK(chosen(bookworm, "gfx942") == "clang 19");
  CHECK(chosen(bookworm, "gfx1201") == "clang 19");
  CHECK(chosen(bookworm, "gfx1152") == "clang 19");
  const InstalledCompilers rocm{{hiprtc(700)}, {}};
  for (const GpuTarget& target : gpu_targets())
    if (target.vendor == driver::Vendor::kAmd) CHECK(choose_compiler(rocm, target).name == "hipRTC 7.0");
  CHECK(chosen({{hiprtc(0)}, {}}, "gfx950") == "hipRTC 0.0");  // unknown version: tried anyway
  InstalledCompiler rocm_clang = clang(600);
  rocm_clang.of_rocm = true;
  CHECK(chosen({{rocm_clang}, {}}, "gfx942") == "clang 600");
}

TEST_CASE("a target without a compiler gives one line with the reason and the package") {
  const auto line = [](const InstalledCompilers& installed, const char* target) {
    return refusal([&] { static_cast<void>(choose_compiler(installed, *find_target(target))); });
  };
  const std::string old = line({{hiprtc(502)}, {}}, "gfx1100");
  CHECK(has(old, "hipRTC 5.2 does not know it, 5.5 would"));
  CHECK(has(old, "install clang-19 and lld-19"));
  const std::string newest = line({{hiprtc(502), clang(19)}, {}}, "gfx950");
  CHECK(has(newest, "clang 19 does not know it, 20 would"));
  CHECK(has(newest, "install ROCm 6.4"));
  const std::string coming = line({{hiprtc(604), clang(19)}, {}}, "gfx1153");
  CHECK(has(coming, "clang 19 does not know it, 20 would"));
  CHECK(has(coming, "install ROCm 7.0"));
  CHECK(has(line({{}, {"libamdhip64.so does not load"}}, "gfx1030"), "does not load"));
  CHECK(has(line({{}, {}}, "gfx1030"), "none is installed"));
  CHECK(has(line({{nvrtc(1300)}, {}}, "sm_70"), "NVRTC 13.0 no longer knows it, 12.9 did"));
  CHECK(has(line({{nvrtc(1206)}, {}}, "sm_120"), "NVRTC 12.8 or later"));
}

TEST_CASE("clang is identified by its version output, and refused where it cannot link") {
  const TempDir dir;
  const fs::path fake = dir.write("clang-19", "#!/bin/sh\n");
  fs::permissions(fake, fs::perms::owner_all);
  const auto found = find_compilers(driver::Vendor::kAmd, fake);
  for (const auto& compiler : found.list) CHECK(compiler.kind != CompilerKind::kClang);
  CHECK_FALSE(found.problems.empty());
  fs::permissions(dir.write("ld.lld", "#!/bin/sh\n"), fs::perms::owner_all);
  const auto with_linker = find_compilers(driver::Vendor::kAmd, fake);
  REQUIRE_FALSE(with_linker.list.empty());
  CHECK(with_linker.list.back().version == 19);
  CHECK(with_linker.list.back().at == fs::canonical(fake));
  const std::string before = compiler_identity(with_linker.list.back());
  std::ofstream(fake, std::ios::app) << "# newer\n";
  CHECK(compiler_identity(with_linker.list.back()) != before);
}

}  // namespace forge::codegen::tests

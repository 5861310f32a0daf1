// Compiles kernel sources with the host compiler and packs the shared objects as code objects of the null driver.
#include "tests/gpu_host/host_compiler.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "support/error.h"

extern char** environ;

namespace forge::gpu_host {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kJobsAtOnce = 2;
/// The first bytes of a shared object. The null driver's image in front of it is text, so they cannot occur there.
constexpr std::string_view kElfMagic =
    "\x7f"
    "ELF";
constexpr std::string_view kLeftOut = "left out";  ///< the last bytes of a code object without a kernel
// C++20, as for GPUs. -O1, because the unrolled kernels take too long to compile at -O2. Sanitizer reports need a line
// table.
constexpr const char* kFlags =
    "-std=c++20 -O1 -g1 -march=native -ffp-contract=off -fPIC -fvisibility=hidden -w"
#ifndef __clang__
    " -fno-gnu-unique"
#endif
    ;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path.native());
}

std::string_view text_of(std::span<const std::byte> code) {
  return {reinterpret_cast<const char*>(code.data()), code.size()};
}
bool is_left_out(std::span<const std::byte> code) {
  return !text_of(code).contains(kElfMagic);
}

pid_t start_shell(const std::string& command) {
  const char* words[] = {"sh", "-c", command.c_str(), nullptr};
  pid_t child = 0;
  if (const int failed = posix_spawn(&child, "/bin/sh", nullptr, nullptr, const_cast<char**>(words), environ))
    throw Error(ErrorCode::kDevice, "cannot start the host compiler", std::generic_category().message(failed));
  return child;
}
bool ended_well(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

ScratchDirectory::ScratchDirectory() {
  std::string name = (fs::temp_directory_path() / "forge-host-XXXXXX").native();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make the directory " + name);
  path_ = name;
}
ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

struct HostKernelCompiler::Job {
  const codegen::KernelSource* source;
  fs::path stem;  ///< path of its files, without extension
};

/// Compiles and links all jobs, at most kJobsAtOnce at a time. Errors: that of the first job that fails, after all have
/// ended.
void HostKernelCompiler::build(std::vector<Job>& jobs) {
  std::string sanitizer = FORGE_HOST_ASAN ? " -fsanitize=address" : "";
  if (undefined_) sanitizer += " -fsanitize=undefined -fno-sanitize-recover=undefined";
  std::vector<pid_t> children;
  const Job* failed = nullptr;
  const auto wait = [&](std::size_t i) {
    if (!ended_well(children[i]) && failed == nullptr) failed = &jobs[i];
  };
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (i >= kJobsAtOnce) wait(i - kJobsAtOnce);
    const std::string stem = jobs[i].stem.native();
    write_file(stem + ".cc", jobs[i].source->text);
    // Two steps, so that ccache can answer the first one, whose command line must not depend on the directory.
    children.push_back(start_shell(fmt::format(
        "cd '{3}' && {{ {0} {1}{2} -ffile-prefix-map='{3}'=. -I'{4}' -c {5}.cc && {0} -shared{2} {5}.o -o {5}.so; }} "
        ">{5}.log 2>&1",
        FORGE_HOST_CXX, kFlags, sanitizer, directory_.path().native(), FORGE_SOURCE_ROOT,
        jobs[i].stem.filename().native())));
    ++compilations_;
  }
  for (std::size_t i = jobs.size() < kJobsAtOnce ? 0 : jobs.size() - kJobsAtOnce; i < jobs.size(); ++i) wait(i);
  if (failed != nullptr)
    throw Error(ErrorCode::kDevice, "the host compiler refuses kernel " + failed->source->entry,
                read_file(failed->stem.native() + ".log"));
}

codegen::CompiledKernel HostKernelCompiler::load(const Job& job) const {
  const std::string& entry = job.source->entry;
  const std::string library = read_file(job.stem.native() + ".so");
  gpu::HostKernel kernel{};
  try {
    kernel = Module(job.stem.native() + ".so").kernel(entry).code;
  } catch (const std::runtime_error& error) {
    throw Error(ErrorCode::kDevice, "the source of kernel " + entry + " is not what it says", error.what());
  }
  const driver::NullKernelImage image{
      .name = entry,
      .arg_bytes = {kernel.args_bytes},
      .facts = {.registers = -1, .lds_bytes = 0, .scratch_bytes = -1, .threads_per_block_max = kernel.threads}};
  codegen::CompiledKernel out;
  out.code = driver::null_image({&image, 1});
  const auto bytes = std::as_bytes(std::span(library));
  out.code.insert(out.code.end(), bytes.begin(), bytes.end());
  out.facts.wave = kernel.wave;
  out.compiler = "host";
  return out;
}

std::vector<codegen::CompiledKernel> HostKernelCompiler::compile(const std::string& target,
                                                                 std::span<const codegen::KernelSource> sources) {
  std::vector<Job> jobs;
  std::set<std::string_view> asked;
  for (const codegen::KernelSource& source : sources)
    if (!built_.contains(source.text) && asked.insert(source.text).second)
      jobs.push_back({&source, directory_.path() / fmt::format("{}_{:016x}", source.entry,
                                                               XXH3_64bits(source.text.data(), source.text.size()))});
  build(jobs);
  for (const Job& job : jobs) built_.emplace(job.source->text, load(job));

  std::vector<codegen::CompiledKernel> out;
  for (const codegen::KernelSource& source : sources) {
    out.push_back(built_.at(source.text));
    if (target.starts_with("host-wave") && target != fmt::format("host-wave{}", out.back().facts.wave))
      throw Error(ErrorCode::kUsage, fmt::format("kernel {} is not for {}", source.entry, target),
                  fmt::format("it has waves of {}", out.back().facts.wave));
  }
  return out;
}

codegen::CompiledKernel left_out_kernel(const std::string& entry, int wave) {
  codegen::CompiledKernel out;
  driver::NullKernelImage image;
  image.name = entry;
  out.code = driver::null_image({&image, 1});
  std::ranges::copy(std::as_bytes(std::span(kLeftOut)), std::back_inserter(out.code));
  out.facts.wave = wave;
  out.compiler = "host";
  return out;
}

Kernel load_host_kernel(const std::string& entry, std::span<const std::byte> code) {
  const std::string_view text = text_of(code);
  const std::size_t library = text.find(kElfMagic);
  if (library == std::string_view::npos) throw std::runtime_error("no code object of the host: " + entry);
  const ScratchDirectory directory;  // a loaded object stays mapped after its file is removed
  const fs::path path = directory.path() / (entry + ".so");
  write_file(path, text.substr(library));
  return Module(path.native()).kernel(entry);
}

void run_on_host(driver::NullControl& control, const Launch& launch) {
  control.set_loader([launch](const std::string& entry, std::span<const std::byte> image) -> driver::NullKernel {
    if (is_left_out(image))
      return [entry](const driver::NullLaunch&) { throw std::runtime_error("kernel " + entry + " was left out"); };
    const Kernel kernel = load_host_kernel(entry, image);
    return [kernel, launch](const driver::NullLaunch& call) {
      const auto refuse = [&](const std::string& why) { throw std::runtime_error(kernel.name + ": " + why); };
      if (call.grid.y != 1 || call.grid.z != 1 || call.block.y != 1 || call.block.z != 1)
        refuse("grids and blocks have one dimension");
      if (call.block.x != static_cast<std::uint32_t>(kernel.code.threads))
        refuse(fmt::format("a block has {} threads, not {}", kernel.code.threads, call.block.x));
      if (call.lds_bytes != 0) refuse("kernels have no dynamic LDS");
      Launch with_grid = launch;
      with_grid.blocks = static_cast<int>(call.grid.x);
      run_kernel(kernel, with_grid, call.args.at(0).data(), call.args.at(0).size());
    };
  });
}

}  // namespace forge::gpu_host

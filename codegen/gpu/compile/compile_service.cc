#include "codegen/gpu/compile/compile_service.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "codegen/gpu/compile/code_object.h"
#include "codegen/gpu/compile/compile_pool.h"
#include "codegen/gpu/source/sources.h"
#include "support/error.h"
#include "support/os/cpus.h"

namespace forge::codegen {
namespace {

namespace fs = std::filesystem;

/// Lines of a failed compilation's log that the user sees; the whole log is saved beside the source.
constexpr std::size_t kLogLinesShown = 30;

bool is_identifier(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && text.size() <= 128 && letter(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

/// The failure in one line: the compiler's first error, else what happened to the compiler and the last line of its
/// log.
std::string reason_of(const CompileReply& reply) {
  const std::string_view log = reply.log;
  if (const auto mark = log.find("error:"); mark != std::string_view::npos) {
    const auto before = log.rfind('\n', mark);
    const std::size_t start = before == std::string_view::npos ? 0 : before + 1;
    return printable(log.substr(start, std::min(log.find('\n', mark), log.size()) - start), 160);
  }
  const auto last = log.find_last_not_of(" \n");
  if (last == std::string_view::npos) return reply.failure;
  const auto before = log.rfind('\n', last);
  const std::size_t start = before == std::string_view::npos ? 0 : before + 1;
  return fmt::format("{}: {}", reply.failure, printable(log.substr(start, last + 1 - start), 120));
}

std::string_view first_lines(std::string_view text, std::size_t lines) {
  std::size_t end = 0;
  while (lines-- > 0 && end < text.size()) end = std::min(text.find('\n', end), text.size() - 1) + 1;
  while (end > 0 && text[end - 1] == '\n') --end;
  return text.substr(0, end);
}

}  // namespace

/// A kernel that is being compiled or was found in the cache.
struct CompileService::Job {
  const KernelSource* source = nullptr;
  const InstalledCompiler* compiler = nullptr;
  CompileRequest request;
  std::string key;
  std::optional<CompiledKernel> result;
};

CompileService::CompileService(CompileServiceOptions options)
    : options_(std::move(options)), cache_(options_.cache, options_.note ? options_.note : [](const std::string&) {}) {
  if (options_.jobs <= 0) options_.jobs = static_cast<int>(usable_cpus());
}

const InstalledCompiler& CompileService::compiler_for(const GpuTarget& target) {
  if (const auto known = compilers_.find(target.name); known != compilers_.end()) return known->second;
  InstalledCompilers installed = find_compilers(target.vendor, options_.clang);
  if (options_.prefer_clang)
    std::ranges::stable_partition(installed.list, [](const auto& row) { return row.kind == CompilerKind::kClang; });
  return compilers_.emplace(target.name, choose_compiler(installed, target)).first->second;
}

// The cache key covers everything that determines the code: the compiler, the kernel's name, the expanded source, the
// target and the options.
CompileService::Job CompileService::job_of(const GpuTarget& target, const KernelSource& source) {
  invariant(is_identifier(source.entry), "GPU-001", "a kernel's name is a C identifier of at most 128 letters");
  Job job;
  job.source = &source;
  job.compiler = &compiler_for(target);
  job.request = {.kind = job.compiler->kind,
                 .program = job.compiler->at.native(),
                 .name = source.entry,
                 .text = expand_source(source.text, source.entry),
                 .options = compile_options(job.compiler->kind, target)};
  std::vector<std::string> texts{compiler_identity(*job.compiler), source.entry, job.request.text,
                                 std::string(target.name)};
  texts.insert(texts.end(), job.request.options.begin(), job.request.options.end());
  job.key = kernel_key(texts);
  return job;
}

fs::path CompileService::cache_path(const std::string& target, const KernelSource& source) {
  const GpuTarget* row = find_target(target);
  return row == nullptr ? fs::path() : cache_.entry_path(job_of(*row, source).key);
}

// Cached code objects are checked like new ones; a bad one is reported and compiled again.
std::vector<CompiledKernel> CompileService::compile(const std::string& target, std::span<const KernelSource> sources) {
  const GpuTarget* row = find_target(target);
  if (row == nullptr)
    throw Error(ErrorCode::kUsage, fmt::format("there is no target {}", printable(target)), {},
                fmt::format("forge knows {}", target_names()));
  std::vector<Job> jobs;
  for (const KernelSource& source : sources) {
    Job& job = jobs.emplace_back(job_of(*row, source));
    auto kept = cache_.find(job.key);
    if (!kept) continue;
    try {
      const auto facts = read_code_object(std::as_bytes(std::span(kept->code)), *row, source.entry);
      const auto bytes = std::as_bytes(std::span(kept->code));
      job.result = {{bytes.begin(), bytes.end()}, facts.kernel, std::move(kept->compiler)};
      ++statistics_.cached;
    } catch (const Error& error) {
      if (options_.note) options_.note(error.line() + " (of the cache, compiling it again)");
    }
  }
  compile_missing(*row, jobs);
  std::vector<CompiledKernel> results;
  for (Job& job : jobs) results.push_back(std::move(*job.result));
  return results;
}

void CompileService::compile_missing(const GpuTarget& target, std::vector<Job>& jobs) {
  std::vector<std::size_t> missing;
  std::vector<CompileRequest> requests;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].result) continue;
    missing.push_back(i);
    requests.push_back(std::move(jobs[i].request));
  }
  if (missing.empty()) return;
  PoolOptions pool{.helper = options_.helper.empty() ? find_helper() : options_.helper,
                   .jobs = options_.jobs,
                   .timeout = options_.timeout};
  if (pool.helper.empty())
    throw Error(ErrorCode::kDevice, "the program forge-kernel-compiler is missing",
                "it is neither beside this program nor in its ../libexec", "install forge again");
  statistics_.helpers += run_requests(pool, requests, [&](std::size_t index, CompileReply reply) {
    Job& job = jobs[missing[index]];
    job.request = std::move(requests[index]);
    job.result = finish(target, job, std::move(reply));
    ++statistics_.compiled;
    return true;
  });
  cache_.evict();
}

CompiledKernel CompileService::finish(const GpuTarget& target, const Job& job, CompileReply reply) {
  if (!reply.failure.empty()) fail(target, job, reply);
  const auto code = std::as_bytes(std::span(reply.code));
  CodeObjectFacts facts;
  try {
    facts = read_code_object(code, target, job.source->entry);
  } catch (const Error& error) {
    reply.failure = error.line();
    fail(target, job, reply);
  }
  // clang writes its full version into the code object: "clang version 19.1.7".
  constexpr std::string_view kVersion = "clang version ";
  std::string compiler = job.compiler->name;
  if (job.compiler->kind == CompilerKind::kClang && !job.compiler->of_rocm && facts.compiler_text.starts_with(kVersion))
    compiler = "clang " + facts.compiler_text.substr(kVersion.size());
  CompiledKernel kernel{{code.begin(), code.end()}, facts.kernel, compiler};
  cache_.store(job.key, {std::move(compiler), std::move(reply.code)});
  return kernel;
}

// Saves a source that did not compile, with its log; returns the source's path, or an empty one on failure.
fs::path CompileService::keep(const GpuTarget& target, const Job& job, const std::string& log) const {
  std::error_code failed;
  fs::path folder = options_.keep_dir;
  if (folder.empty() && !options_.cache.directory.empty()) folder = options_.cache.directory / "failed";
  if (folder.empty()) {
    std::string name = (fs::temp_directory_path(failed) / "forge-failed-XXXXXX").native();
    if (mkdtemp(name.data()) != nullptr) folder = name;
  } else {
    fs::create_directories(folder.parent_path(), failed);
    mkdir(folder.c_str(), 0700);
  }
  const std::string stem = fmt::format("{}.{}", job.source->entry, target.name);
  const fs::path source = folder / (stem + (job.request.kind == CompilerKind::kNvrtc ? ".cu" : ".hip"));
  std::ofstream(folder / (stem + ".log"), std::ios::binary) << log;
  std::ofstream out(source, std::ios::binary);
  return (out << job.request.text).flush() ? source : fs::path();
}

// Reports a failed compilation: saves the source, shows the first lines of the log, throws.
void CompileService::fail(const GpuTarget& target, const Job& job, const CompileReply& reply) {
  const fs::path kept = keep(
      target, job,
      fmt::format("{} {}\n{}\n{}", job.compiler->name, fmt::join(job.request.options, " "), reply.failure, reply.log));
  if (options_.note && !reply.log.empty()) options_.note(std::string(first_lines(reply.log, kLogLinesShown)));
  throw Error(ErrorCode::kDevice,
              fmt::format("{} cannot compile kernel {} for {}", job.compiler->name, job.source->entry, target.name),
              reason_of(reply),
              kept.empty() ? "its source could not be kept"
                           : fmt::format("its source and the log are kept: {}", printable(kept.native(), 200)));
}

}  // namespace forge::codegen

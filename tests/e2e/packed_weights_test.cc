// Packed weights that are kept as files: a second start maps them and computes the same bits. A file or folder that
// cannot be used gives one warning line, and the weights are packed again.

#include "runtime/cpu/packed_weights.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <numeric>

#include "support/os/unique_fd.h"
#include "tests/e2e/tiny_model.h"
#include "tests/support/temp_dir.h"

namespace forge {
namespace {

namespace fs = std::filesystem;
using tests::TinyModel;

struct Fixture {
  explicit Fixture(DType dtype = DType::kQ4_0) : model({.dtype = dtype}) {
    options.folder = folder.file("weights");
    options.bytes_max = std::uint64_t{1} << 30;
    options.model = model.file().identity;
    options.stamp = "1";
    options.note = [this](const std::string& line) { lines.push_back(line); };
  }
  [[nodiscard]] std::unique_ptr<runtime::CpuExecutor> open(const std::string& target = codegen::host_target()) {
    lines.clear();
    std::shared_ptr<const plan::ProgramT> program =
        codegen::compile_program(model.portable().graph, model.file(), target, {.context = 64});
    runtime::SpanWeightSource source("tiny", model.bytes());
    return std::make_unique<runtime::CpuExecutor>(std::move(program), source,
                                                  runtime::ExecutorOptions{.threads = 2, .packed = &options});
  }
  [[nodiscard]] static std::vector<float> logits(runtime::Executor& executor) {
    return tests::run_alone(executor, tests::random_ids(20, 90, 3), 20, {0});
  }
  /// True if the program's weights were mapped from a file and not packed.
  [[nodiscard]] static bool mapped(const runtime::Executor& executor) {
    const auto report = executor.load_report();
    const auto weights = static_cast<std::uint64_t>(executor.program().weights_bytes);
    CHECK((report.mapped_bytes == 0 || report.mapped_bytes == weights));
    const bool mapped = report.mapped_bytes > 0;
    CHECK(mapped == (report.bytes == 0));
    return mapped;
  }
  /// Path of the only entry in the folder.
  [[nodiscard]] fs::path entry() const {
    std::vector<fs::path> found;
    for (const auto& file : fs::directory_iterator(options.folder)) found.push_back(file.path());
    REQUIRE(found.size() == 1);
    return found[0];
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(options.folder), {}));
  }

  TinyModel model;
  tests::TempDir folder;
  runtime::PackedWeightsOptions options;
  std::vector<std::string> lines;
};

void flip(const fs::path& path, std::uint64_t at) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 1));
  REQUIRE(file.good());
}

/// A weight source whose reads fail from the n-th one on.
class FailingSource final : public runtime::WeightSource {
 public:
  FailingSource(std::span<const std::byte> bytes, int good) : bytes_(bytes), good_(good) {}
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] std::uint64_t bytes(std::uint32_t) const override { return bytes_.size(); }
  [[nodiscard]] std::span<const std::byte> data(std::uint32_t) const override { return bytes_; }
  void read(std::uint32_t, std::uint64_t offset, std::span<std::byte> out) const override {
    if (good_.fetch_sub(1) <= 0) throw Error(ErrorCode::kIo, "cannot read model", "the disk is gone");
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }
  void prefetch(std::uint32_t, std::uint64_t, std::uint64_t) const noexcept override {}

 private:
  std::span<const std::byte> bytes_;
  mutable std::atomic<int> good_;
  std::string name_ = "model";
};

}  // namespace

TEST_CASE("a read that fails while weights are packed, on any thread, is reported") {
  const Fixture fixture;
  std::shared_ptr<const plan::ProgramT> program = codegen::compile_program(
      fixture.model.portable().graph, fixture.model.file(), codegen::host_target(), {.context = 64});
  const std::size_t threads = GENERATE(1, 2);
  for (const int good : {0, 1, 7}) {
    FailingSource source(fixture.model.bytes(), good);
    CHECK_THROWS_WITH(runtime::CpuExecutor(program, source, runtime::ExecutorOptions{.threads = threads}),
                      Catch::Contains("the disk is gone"));
  }
  FailingSource source(fixture.model.bytes(), 1 << 20);
  CHECK_NOTHROW(runtime::CpuExecutor(program, source, runtime::ExecutorOptions{.threads = threads}));
}

TEST_CASE("a second start maps the packed weights of the first, and computes the same bits") {
  for (const auto dtype : {DType::kF16, DType::kQ4_0, DType::kQ8_0}) {
    Fixture f(dtype);
    const auto first = f.open();
    CHECK_FALSE(Fixture::mapped(*first));
    const auto expected = Fixture::logits(*first);
    const auto second = f.open();
    CHECK(Fixture::mapped(*second));
    CHECK(f.lines.empty());
    CHECK(Fixture::logits(*second) == expected);
    CHECK(Fixture::logits(*f.model.open()) == expected);
    struct stat status{};
    REQUIRE(::stat(f.entry().c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    CHECK(second->memory_requirements().weights == first->memory_requirements().weights);
    fs::remove(f.entry());  // a mapping survives the removal of its file: another process may evict it
    CHECK(Fixture::logits(*second) == expected);
  }
}

TEST_CASE("a damaged file of packed weights gives one warning and is rewritten") {
  Fixture f;
  const auto expected = Fixture::logits(*f.open());
  const auto path = f.entry();
  const auto bytes = fs::file_size(path);
  const std::uint64_t header = bytes - static_cast<std::uint64_t>(f.open()->program().weights_bytes);
  const auto damage = [&](const char* what, const auto& change) {
    INFO(what);
    change();
    const auto executor = f.open();
    CHECK_FALSE(Fixture::mapped(*executor));
    REQUIRE(f.lines.size() == 1);
    CHECK_THAT(f.lines[0], Catch::StartsWith("error[cache]: ") && Catch::Contains("packing them again"));
    CHECK(f.lines[0].find('\n') == std::string::npos);
    CHECK(Fixture::logits(*executor) == expected);
    CHECK(Fixture::mapped(*f.open()));
    CHECK(f.lines.empty());
  };
  for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{20}, std::uint64_t{50}, std::uint64_t{57},
                                 std::uint64_t{64}, header, header + 1000, bytes - 1})
    damage("a flipped bit", [&] { flip(path, at); });
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{40}, header, bytes - 1, bytes + 1})
    damage("another size", [&] { fs::resize_file(path, size); });
  damage("a link", [&] {
    fs::rename(path, f.folder.file("elsewhere"));
    fs::create_symlink(f.folder.file("elsewhere"), path);
  });
  damage("a pipe", [&] {
    fs::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  });
  damage("the model file was written to", [&] { f.options.stamp = "2"; });
}

TEST_CASE("packed weights of another CPU class, model or layout use another file") {
  Fixture f;
  const auto expected = Fixture::logits(*f.open("cpu-generic"));
  const auto other = f.open();
  if (other->program().target != "cpu-generic") CHECK_FALSE(Fixture::mapped(*other));
  CHECK(Fixture::mapped(*f.open("cpu-generic")));
  CHECK(Fixture::logits(*f.open("cpu-generic")) == expected);
  f.options.model += "x";
  CHECK_FALSE(Fixture::mapped(*f.open("cpu-generic")));
  CHECK(f.lines.empty());
  f.options.model = f.model.file().identity;

  // A program with fewer load steps packs zeros for the missing weights. It must not share its file with the complete
  // program.
  const auto program =
      codegen::compile_program(f.model.portable().graph, f.model.file(), "cpu-generic", {.context = 64});
  const auto whole = runtime::PackedWeights(f.options, *program).path();
  CHECK(fs::exists(whole));
  program->load_steps.pop_back();
  CHECK(runtime::PackedWeights(f.options, *program).path() != whole);
}

TEST_CASE("a plan cannot be made to share the packed weights of a plan that loads differently") {
  Fixture f;
  const auto path_of = [&](const plan::ProgramT& program) { return runtime::PackedWeights(f.options, program).path(); };
  const auto compiled = [&] {
    return codegen::compile_program(f.model.portable().graph, f.model.file(), "cpu-generic", {.context = 64});
  };
  const auto whole = compiled();
  SECTION("with a step label that imitates the hash text of another step") {
    const auto less = compiled();
    auto& steps = less->load_steps;
    REQUIRE(steps.size() > 2);
    steps[1]->label = fmt::format("{}\ns {}", steps[0]->body.AsLoadWeight()->weight, steps[1]->label);
    steps.erase(steps.begin());
    CHECK(path_of(*less) != path_of(*whole));
  }
  SECTION("with rows at other places in the file") {
    const auto scattered = compiled();
    scattered->weights[0]->scattered = !scattered->weights[0]->scattered;
    CHECK(path_of(*scattered) != path_of(*whole));
  }
  SECTION("with another part of a tensor, or another file") {
    using Source = plan::WeightSourceT;
    for (const auto member : {&Source::tensor_rows, &Source::tensor_cols, &Source::row_begin, &Source::rows,
                              &Source::col_begin, &Source::cols}) {
      const auto part = compiled();
      part->weights[0]->sources[0].get()->*member += 1;
      CHECK(path_of(*part) != path_of(*whole));
    }
    const auto elsewhere = compiled();
    elsewhere->weights[0]->sources[0]->file = 1;
    CHECK(path_of(*elsewhere) != path_of(*whole));
  }
  SECTION("with a missing weight") {
    const auto missing = compiled();
    missing->weights[0] = nullptr;
    const auto absent = compiled();
    absent->weights.erase(absent->weights.begin());
    CHECK(path_of(*missing) != path_of(*absent));
  }
}

TEST_CASE("a folder that cannot keep packed weights gives one warning") {
  Fixture f;
  const auto refused = [&] {
    const auto executor = f.open();
    CHECK_FALSE(Fixture::mapped(*executor));
    CHECK(Fixture::logits(*executor) == Fixture::logits(*f.model.open()));
    REQUIRE(f.lines.size() == 1);
    CHECK_THAT(f.lines[0], Catch::StartsWith("error[cache]: ") && Catch::Contains("each start"));
  };
  const auto file = f.folder.write("file", "x");
  const auto good = std::exchange(f.options.folder, file);
  refused();
  f.options.folder = file / "below";
  refused();
  f.options.folder = good;
  f.options.bytes_max = 1000;
  refused();
  CHECK_FALSE(fs::exists(good));
  f.options.bytes_max = std::uint64_t{1} << 30;
  fs::create_directory(good);
  fs::permissions(good, fs::perms::all);
  refused();
  CHECK(fs::is_empty(good));
}

TEST_CASE("packed weights that another process is writing are left to it") {
  Fixture f;
  (void)f.open();
  const auto path = f.entry();
  const auto temporary = path.parent_path() / ("." + path.filename().native() + ".tmp");
  fs::remove(path);
  {
    std::ofstream(temporary) << "what a killed process left is longer than nothing";
    const UniqueFd writer(::open(temporary.c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(::flock(writer.get(), LOCK_EX | LOCK_NB) == 0);
    CHECK_FALSE(Fixture::mapped(*f.open()));
    CHECK(f.lines.empty());
    CHECK(f.entry() == temporary);
  }
  CHECK_FALSE(Fixture::mapped(*f.open()));  // the lock is released: the file is taken over
  CHECK(f.entry() == path);
  CHECK(Fixture::mapped(*f.open()));
}

TEST_CASE("the least recently used packed weights are removed to make room") {
  Fixture f;
  (void)f.open();
  const auto old = f.entry();
  f.options.bytes_max = fs::file_size(old) * 3 / 2;
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(1));
  f.options.model += "x";
  (void)f.open();
  CHECK(f.files() == 1);
  CHECK_FALSE(fs::exists(old));
  CHECK(Fixture::mapped(*f.open()));
}

}  // namespace forge

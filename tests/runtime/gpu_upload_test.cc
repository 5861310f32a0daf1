// Weight upload through the staging ring: every byte reaches its row, and a ring slot is reused only after its event. A
// slot that is refilled too early would corrupt weights silently, so most cases run the null driver with
// deferred execution.

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/gpu/weight_upload.h"
#include "runtime/plan/gpu_io.h"
#include "runtime/plan/step.h"
#include "support/error.h"
#include "tests/runtime/gpu_model.h"

namespace forge {
namespace {

using test::error_line;
using test::GpuModel;

constexpr std::int64_t kManyRows = 11'000;  // 43 MiB: more than ten slots of 4 MiB, in a ring of eight

/// A weight source whose reads can fail, and which counts prefetch hints.
class Source final : public runtime::WeightSource {
 public:
  explicit Source(const std::vector<std::byte>& bytes) : bytes_(bytes) {}
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] std::uint64_t bytes(std::uint32_t) const override { return bytes_.size(); }
  [[nodiscard]] std::span<const std::byte> data(std::uint32_t) const override { return {}; }
  void read(std::uint32_t, std::uint64_t offset, std::span<std::byte> out) const override {
    if (++reads == fail_at) throw Error(ErrorCode::kIo, "cannot read model", "the disk is gone");
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }
  void prefetch(std::uint32_t, std::uint64_t, std::uint64_t count) const noexcept override { prefetched += count; }

  mutable std::atomic<std::uint64_t> reads = 0, prefetched = 0;
  std::uint64_t fail_at = 0;

 private:
  const std::vector<std::byte>& bytes_;
  std::string name_ = "model";
};

/// The load step of the table's second source.
plan::StepT& repack_step(GpuModel& model) {
  return *model.program->load_steps[1];
}
plan::RepackT& repack(GpuModel& model) {
  return *repack_step(model).body.AsRepack();
}

}  // namespace

TEST_CASE("a weight larger than the ring arrives complete, and no slot is refilled before its event") {
  const auto [deferred, threads] =
      GENERATE(table<bool, std::size_t>({{true, 1}, {true, 2}, {true, 9}, {false, 1}, {false, 2}, {false, 9}}));
  const GpuModel model({.driver = {.deferred = deferred}, .large_rows = kManyRows});
  const auto driver = model.driver();
  Source source(model.file);
  const auto executor = std::make_unique<runtime::GpuExecutor>(model.program, source, driver.device(0),
                                                               runtime::ExecutorOptions{.threads = threads});
  test::feed(*executor, {1, 2});  // the kernels record the weight's address
  const auto expected = model.large_weight();
  REQUIRE(model.seen->large != 0);
  CHECK(std::memcmp(reinterpret_cast<const void*>(model.seen->large), expected.data(), expected.size()) == 0);
  CHECK(test::feed(*executor, {1, 2, 3}) == model.logits({1, 2, 3}));
  CHECK(executor->load_report().bytes == expected.size() + 128);
  CHECK(executor->load_report().seconds > 0);
  CHECK(source.prefetched == expected.size() + 128);
  CHECK(executor->memory_requirements().staging == 8 * (std::size_t{4} << 20));
  // The ring uses no pinned memory of its own: it shares the buffers that hold a step's inputs and logits later.
  CHECK(driver.pinned_allocations().total == 2);
  CHECK(driver.pinned_allocations().live_bytes < executor->memory_requirements().staging + (1 << 20));
}

TEST_CASE("a part of a tensor's rows and columns is uploaded correctly") {
  const std::size_t threads = GENERATE(1U, 3U);
  constexpr std::size_t kRowsBefore = 5, kRows = kManyRows / 2 - 9, kRowBytes = 4096, kTensorRowBytes = 2 * kRowBytes;
  const GpuModel model({.driver = {.deferred = true}, .large_rows = kManyRows});
  auto& weight = *model.program->weights[2];
  weight.rows = kRows;
  auto& source = *weight.sources[0];
  source.tensor_rows = kManyRows / 2;
  source.tensor_cols = kTensorRowBytes / 4;
  source.row_begin = kRowsBefore;
  source.rows = kRows;
  source.col_begin = 512;
  source.cols = kRowBytes / 4;
  const auto driver = model.driver();
  const auto executor = model.open(driver, {.threads = threads});
  test::feed(*executor, {1, 2});
  REQUIRE(model.seen->large != 0);
  const auto tensor = model.large_weight();
  const auto* loaded = reinterpret_cast<const std::byte*>(model.seen->large);
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < kRows; ++r) {
    const auto* row = tensor.data() + (kRowsBefore + r) * kTensorRowBytes + 2048;
    wrong += std::memcmp(loaded + r * kRowBytes, row, kRowBytes) == 0 ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(executor->load_report().bytes == kRows * kRowBytes + 128);
}

TEST_CASE("each source is read from its own file of the model") {
  const std::size_t threads = GENERATE(1U, 3U);
  GpuModel model({.driver = {.deferred = true}, .large_rows = kManyRows});
  // The second file has the large weight and one of the two tensors that become the table; the third has the bias. The
  // same offsets in the other files hold other bytes.
  const auto whole = model.file;
  std::vector<std::vector<std::byte>> files(3, whole);
  for (auto& file : files) std::ranges::fill(file, std::byte{0x11});
  const auto move = [&](plan::WeightSourceT& source, std::uint32_t file, std::uint64_t bytes) {
    std::ranges::copy(std::span(whole).subspan(source.offset, bytes), files[file].begin() + source.offset);
    source.file = file;
  };
  move(*model.program->weights[0]->sources[0], 2, 64);
  move(*model.program->weights[1]->sources[0], 0, 32);
  move(*model.program->weights[1]->sources[1], 1, 32);
  move(*model.program->weights[2]->sources[0], 1, kManyRows * 4096);
  const auto driver = model.driver();
  runtime::SpanWeightSource source("model", {files[0], files[1], files[2]});
  runtime::GpuExecutor executor(model.program, source, driver.device(0), runtime::ExecutorOptions{.threads = threads});
  CHECK(test::feed(executor, {1, 2, 3}) == model.logits({1, 2, 3}));
  const auto expected = model.large_weight();
  REQUIRE(model.seen->large != 0);
  CHECK(std::memcmp(reinterpret_cast<const void*>(model.seen->large), expected.data(), expected.size()) == 0);
  CHECK(executor.load_report().bytes == expected.size() + 128);
}

TEST_CASE("slices are whole rows in order, and each launch covers its rows") {
  const GpuModel model({.large_rows = kManyRows});
  const auto driver = model.driver();
  const auto executor = model.open(driver, {.threads = 1});
  std::int64_t next = 0, slices = 0;
  for (const auto& launch : model.seen->repacks) {
    std::int64_t words[7] = {};
    REQUIRE(launch.args.at(0).size() == sizeof words);
    std::memcpy(words, launch.args[0].data(), sizeof words);
    const auto [to, staged, first, count, row_first, unit, stride] = words;
    CHECK(launch.hints.overlap_predecessor == false);
    if (launch.kernel == "repack4") {
      CHECK(launch.grid.x == 16);  // two blocks per row
      CHECK(launch.block.x == 64);
      CHECK((count == 8 && first == 0 && unit == 2 && stride == 4));
      continue;
    }
    CHECK(launch.grid.x == count);
    CHECK(first == next);
    CHECK(staged % 256 == 0);
    next += count;
    ++slices;
  }
  CHECK(next == kManyRows);
  CHECK(slices >= 6);
}

TEST_CASE("a file that cannot be read ends the load with its own error line, and nothing stays allocated") {
  for (const auto& [fail_at, threads] : std::vector<std::pair<std::uint64_t, std::size_t>>{
           {1, 2}, {2, 2}, {40, 2}, {80, 2}, {1, 9}, {40, 9}, {80, 9}, {80, 1}}) {
    const GpuModel model({.driver = {.deferred = true}, .large_rows = kManyRows});
    const auto driver = model.driver();
    Source source(model.file);
    source.fail_at = fail_at;
    const auto line = error_line(
        [&] {
          runtime::GpuExecutor(model.program, source, driver.device(0), runtime::ExecutorOptions{.threads = threads});
        },
        ErrorCode::kIo);
    CHECK_THAT(line, Catch::Contains("the disk is gone"));
    CHECK(model.control->counts().held() == 0);
    CHECK(driver.failed_releases() == 0);
  }
}

TEST_CASE("an upload that fails at its last call is an error") {
  const GpuModel model;
  const auto driver = model.driver();
  model.control->fail("stream_synchronize", 2);
  CHECK_THAT(error_line([&] { (void)model.open(driver); }, ErrorCode::kDevice), Catch::Contains("uploading weights"));
  CHECK(model.control->counts().held() == 0);
}

TEST_CASE("a broken load step is refused before anything is loaded") {
  struct Case {
    const char* says;
    void (*breaks)(GpuModel&);
  };
  const Case cases[] = {
      {"out of range", [](GpuModel& m) { repack(m).weight = 7; }},
      {"out of range", [](GpuModel& m) { repack(m).source = 2; }},
      {"out of range", [](GpuModel& m) { repack(m).unit = 0; }},
      {"out of range", [](GpuModel& m) { repack(m).blocks_per_row = 0; }},
      {"not a load step", [](GpuModel& m) { repack_step(m).body.Reset(); }},
      {"out of range", [](GpuModel& m) { repack(m).row_bytes = std::int64_t{1} << 40; }},
      {"another size", [](GpuModel& m) { repack(m).row_bytes = 8; }},
      {"of a weight with 16", [](GpuModel& m) { repack(m).row_first = 3; }},
      {"of a weight with 16", [](GpuModel& m) { repack(m).stride = 5; }},
      {"leaves the model file", [](GpuModel& m) { m.program->weights[1]->sources[1]->offset = 1 << 20; }},
      {"a file that the model does not have", [](GpuModel& m) { m.program->weights[1]->sources[1]->file = 1; }},
      {"rows that its tensor does not have", [](GpuModel& m) { m.program->weights[1]->sources[1]->row_begin = 1; }},
      {"columns that its tensor does not have", [](GpuModel& m) { m.program->weights[1]->sources[1]->col_begin = 1; }},
      {"not whole", [](GpuModel& m) { m.program->weights[1]->dtype = 8; }},
      {"another length", [](GpuModel& m) { m.program->weights[1]->cols = 2; }},
      {"extends past its block", [](GpuModel& m) { m.program->weights[1]->bytes = 1 << 20; }},
      {"extends past its block", [](GpuModel& m) { repack_step(m).operands.clear(); }},
      {"leaves the weights block",
       [](GpuModel& m) { m.program->load_steps[0]->operands[0] = plan::operand_at(plan::Space::Weights, 0, 512); }},
      {"is missing", [](GpuModel& m) { m.program->load_steps[1].reset(); }},
      {"code object 99 does not exist", [](GpuModel& m) { repack(m).code = 99; }},
      {"blocks of 2000 threads", [](GpuModel& m) { repack(m).threads = 2000; }},
  };
  for (const auto& [says, breaks] : cases) {
    GpuModel model;
    breaks(model);
    const auto driver = model.driver();
    CHECK_THAT(error_line([&] { (void)model.open(driver); }, ErrorCode::kPlan), Catch::Contains(says));
    CHECK(model.control->counts().held() == 0);
    CHECK(model.control->calls("graph_launch") == 0);
  }
}

}  // namespace forge

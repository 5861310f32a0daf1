// The lane executor itself: correct kernels give correct results, and each kind of mistake is reported as such.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/gpu_host/cases/case_args.h"
#include "tests/gpu_host/shadow.h"
#include "tests/gpu_host/support.h"

using namespace forge;
using namespace forge::gpu_host;
using Catch::Matchers::Contains;

namespace {

struct Ints {
  Buffer<int> in{256}, out{256}, counter{1};
  Ints() {
    std::iota(in.data(), in.data() + in.size(), 1);
    counter[0] = 0;
  }
  [[nodiscard]] gpu::IntArgs args() { return {in.data(), out.data(), counter.data()}; }
};

void run_case(const std::string& kernel, int wave, Ints& ints, Order order = Order::kForward) {
  run_kernel(module_of("faults", wave).kernel(kernel), {.order = order, .seed = 5}, ints.args());
}

void check_fault(const std::string& kernel, int wave, const std::string& words) {
  for (const Order order : kOrders) {
    Ints ints;
    INFO(kernel << ", wave " << wave);
    std::string fault;
    try {
      run_case(kernel, wave, ints, order);
    } catch (const LaneFault& error) {
      fault = error.what();
    }
    CHECK_THAT(fault, Contains(words) && Contains(kernel + ": block 0"));
  }
}

}  // namespace

TEST_CASE("wave sums, for waves of 32 and of 64") {
  for (const int wave : kWaves)
    for (const Order order : kOrders) {
      Ints ints;
      run_case("wave_sums", wave, ints, order);
      for (int i = 0; i < 128; ++i) {
        const int first = i / wave * wave + 1;
        REQUIRE(ints.out[i] == wave * first + wave * (wave - 1) / 2);
      }
      run_case("rotated", wave, ints, order);
      for (int i = 0; i < 64; ++i) REQUIRE(ints.out[i] == i / wave * wave + (i + 1) % wave + 1);
      run_case("butterflies", wave, ints, order);
      for (int i = 0; i < 128; ++i) REQUIRE(ints.out[i] == 1);
      ints.out.check();
    }
}

TEST_CASE(
    "shared memory passes values over a barrier; the last block sees the values of all blocks and resets the counter") {
  for (const int wave : kWaves)
    for (const Order order : kOrders) {
      Ints ints;
      run_case("reversed_in_lds", wave, ints, order);
      for (int i = 0; i < 64; ++i) REQUIRE(ints.out[i] == 64 - i);
      run_case("bytes_in_lds", wave, ints, order);
      for (int i = 0; i < 3 * 64; ++i) REQUIRE(ints.out[i] == (i % 64 ^ 1) + 1);
      run_case("last_sums", wave, ints, order);
      int sum = 0;
      for (int i = 0; i < 3 * 64; ++i) sum += i % 64 < 32 ? i + 1 : 0;
      REQUIRE(ints.out[0] == sum);
      REQUIRE(ints.counter[0] == 0);
    }
}

TEST_CASE("loads, stores and functions do what their names say") {
  Ints ints;
  for (int i = 0; i < 64; ++i) ints.in[i] = static_cast<int>(0x01010101u * static_cast<unsigned>(i * 3));
  run_case("dots", 32, ints);
  for (int i = 0; i < 64; ++i) REQUIRE(ints.out[i] == static_cast<std::int8_t>(i * 3) * (1 + 127 - 1 - 128) - 3);
  Ints other;
  run_case("loads", 64, other);
  for (int i = 0; i < 64; ++i) REQUIRE(other.out[i] == 4 * (i % 16) + 4 + 2 + 2 * i + 2 + i + 1 + 2);
  CHECK(other.counter[0] == 11);
  run_case("functions", 64, other);
  for (int i = 0; i < 64; ++i) REQUIRE(std::abs(other.out[i] - (8 * (5 * (i + 1) + 1) + i + 1)) <= 1);
}

TEST_CASE("blocks, waves and lanes run in the requested order") {
  for (const int wave : kWaves) {
    std::vector<std::vector<int>> turns;
    for (const Order order : kOrders) {
      Ints ints;
      run_case("turns", wave, ints, order);
      REQUIRE(ints.counter[0] == 256);
      turns.push_back(ints.out.values());
    }
    for (int i = 0; i < 256; ++i) {
      REQUIRE(turns[0][i] == i);
      REQUIRE(turns[1][i] == 255 - i);
    }
    CHECK(turns[2] != turns[0]);
    CHECK(turns[2] != turns[1]);
    std::sort(turns[2].begin(), turns[2].end());
    CHECK(turns[2] == turns[0]);
  }
}

TEST_CASE("divergent lanes are reported") {
  for (const int wave : kWaves) {
    check_fault("barrier_missed", wave, "lanes diverge: lane 0 waits at the barrier faults_case.cc:");
    check_fault("barrier_missed", wave, "lane 5 has ended");
    check_fault("barriers_differ", wave, "waits at the barrier faults_case.cc:");
    check_fault("barrier_missed_by_wave", wave, "lanes diverge: lane 0 has ended, lane 64 waits at the barrier");
    check_fault("barriers_differ_by_wave", wave, "lanes diverge: lane 0 waits at the barrier");
    check_fault("shuffle_missed", wave, "waits at the wave's meeting faults_case.cc:");
    check_fault("sums_differ", wave, "lanes diverge");
    check_fault("not_uniform", wave, "uniform() of a value that differs");
    check_fault("shuffle_outside", wave, "a shuffle reads a lane");
    check_fault("brings_too_much", wave, "brings too much");
  }
}

TEST_CASE("misuse of memory is reported") {
  for (const int wave : kWaves) {
    check_fault("lds_unwritten", wave, "nobody has written");
    check_fault("lds_no_barrier", wave, "faults_case.cc:");
    check_fault("lds_overwritten", wave, "no barrier between");
    check_fault("lds_two_writers", wave, "written by two lanes");
    check_fault("lds_outside", wave, "outside an array");
    check_fault("lds_elsewhere", wave, "outside the block's shared memory");
    check_fault("lds_twice", wave, "one object in shared memory");
    check_fault("lds_too_large", wave, "more shared memory than a block may have");
    check_fault("lds_too_aligned", wave, "more shared memory than a block may have");
    for (const char* name : {"misaligned", "misaligned8", "misaligned4"})
      check_fault(name, wave, "from an address that is not a multiple of its size");
  }
}

// Tests the race detector alone. The small epoch limit makes its counter wrap, so that stamps of earlier epochs must be
// reset correctly.
TEST_CASE("a write that races with another write or with a late read is reported, whichever comes first") {
  const auto text = [](const char* fault) { return std::string(fault != nullptr ? fault : ""); };
  Shadow shadow(4);  // the epochs run out every four barriers
  for (int block = 0; block < 20; ++block) {
    shadow.start(8);
    REQUIRE_THAT(text(shadow.read(0, 4, 1)), Contains("nobody has written"));
    REQUIRE(shadow.write(4, 4, 1) == nullptr);
    REQUIRE(shadow.read(4, 4, 1) == nullptr);
    REQUIRE_THAT(text(shadow.read(4, 4, 2)), Contains("is read that another lane wrote"));
    for (int i = 0; i < block % 7 + 1; ++i) shadow.barrier();
    REQUIRE(shadow.read(4, 4, 2) == nullptr);
    REQUIRE(shadow.read(4, 4, 3) == nullptr);
    REQUIRE_THAT(text(shadow.write(7, 1, 3)), Contains("is written that another lane read"));
    REQUIRE_THAT(text(shadow.read(3, 1, 3)), Contains("nobody has written"));
    shadow.barrier();
    REQUIRE(shadow.write(4, 4, 3) == nullptr);
    REQUIRE_THAT(text(shadow.write(5, 1, 4)), Contains("written by two lanes"));
    shadow.barrier();
    REQUIRE(shadow.read(0, 8, 3) != nullptr);
    REQUIRE(shadow.read(4, 4, 3) == nullptr);
    REQUIRE_THAT(text(shadow.write(4, 1, 4)), Contains("is written that another lane read"));
  }
}

// A fault abandons all fibres in the middle of their stacks; the pool must be usable again afterwards.
TEST_CASE("after a fault the next kernel starts with fresh lanes") {
  for (int i = 0; i < 3; ++i) {
    check_fault("barrier_missed", 64, "lanes diverge");
    check_fault("misaligned", 32, "not a multiple");
    Ints ints;
    run_case("reversed_in_lds", 32, ints, Order::kShuffled);
    for (int lane = 0; lane < 64; ++lane) REQUIRE(ints.out[lane] == 64 - lane);
  }
}

TEST_CASE("overwritten guards and results that depend on the lane order are detected") {
  Buffer<int> in{64}, out(64);
  in.fill(1);
  const gpu::IntArgs args{in.data(), out.data(), nullptr};
  const auto run = [&](const char* name, Order order) {
    run_kernel(module_of("faults", 32).kernel(name), {.order = order}, args);
    return out[0];
  };
  CHECK(out.damage().empty());
  run("guard_written", Order::kForward);
  CHECK(out.damage() == "byte 1 behind the buffer was written");
  out.data()[-1] = 0;
  CHECK(out.damage() == "byte 1 before the buffer was written");
  CHECK(run("order_matters", Order::kForward) != run("order_matters", Order::kReverse));
}

TEST_CASE("impossible launches are refused") {
  Ints ints;
  const Module& module = module_of("faults", 32);
  CHECK_THROWS_WITH(module.kernel("absent"), Contains("no kernel 'absent'"));
  CHECK_THROWS_WITH(run_kernel(module.kernel("dots"), {}, 1), Contains("24 bytes of arguments, not 4"));
  CHECK_THROWS_WITH(run_kernel(module.kernel("dots"), {.blocks = 2}, ints.args()), Contains("it has 1 blocks, not 2"));
  CHECK_THROWS_WITH(run_kernel(module.kernel("any_blocks"), {}, ints.args()), Contains("0 blocks"));
  CHECK_THROWS_WITH(run_kernel(module.kernel("part_wave"), {}, ints.args()), Contains("48 threads are no block"));
  run_kernel(module.kernel("any_blocks"), {.blocks = 5}, ints.args());
  for (int i = 0; i < 5; ++i) CHECK(ints.out[i] == i);
  CHECK(ints.out[5] == -1);
  CHECK_THROWS_AS(Module("./absent.so"), std::runtime_error);
}

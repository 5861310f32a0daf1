// The plan file: round trips, and refusal of damaged, forged, oversized and foreign files. A plan may come from another
// machine, so the reader must treat it as hostile even if its checksum is right.
#include "runtime/plan/plan_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <random>

#include "support/error.h"
#include "tests/runtime/plan_samples.h"

namespace forge {
namespace {

using test::forged;
using test::read_bytes;
using test::sample_plan;
using test::TemporaryDirectory;
using test::write_bytes;

/// The error line of reading `path`; empty if it was read.
std::string refusal(const std::filesystem::path& path) {
  try {
    (void)plan::read_plan(path);
    return {};
  } catch (const Error& error) {
    CHECK((error.code() == ErrorCode::kPlan || error.code() == ErrorCode::kIo));
    return error.line();
  }
}

TEST_CASE("a plan is read as it was written") {
  const TemporaryDirectory directory;
  const auto path = directory.path / "model.plan";
  const plan::PlanT written = sample_plan(40);
  plan::write_plan(path, written);
  CHECK(plan::looks_like_plan(path));
  const plan::PlanT read = plan::read_plan(path);
  CHECK(plan::serialize_plan(read) == plan::serialize_plan(written));
  const auto& step = *read.programs.at(0)->variants.at(0)->steps.at(39);
  CHECK(step.layer == 7);
  const auto* tile = step.body.AsTile();
  REQUIRE(tile != nullptr);
  CHECK(tile->source.AsMatmulRows()->k == 576);
  CHECK(tile->sections.at(0)->ops.at(5)->body.AsStoreKv()->first_column == 5);
  CHECK(step.operands.at(1).space() == plan::Space::Weights);
  CHECK(read.programs[0]->variants[0]->bounds.table_blocks() == 16);
  CHECK(read.programs[0]->variants[0]->sample_steps.at(0)->operands.at(0).space() == plan::Space::Counters);
  CHECK(read.programs[0]->counter_bytes == 256);
  CHECK(read.programs[0]->code_objects.at(0)->registers == 40);
  CHECK(read.programs[0]->code_objects.at(0)->occupancy == -1);

  struct stat status{};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  CHECK((status.st_mode & 0777) == (0666 & ~mask));
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path), {}) == 1);
}

TEST_CASE("a flipped byte anywhere in a plan is refused") {
  const TemporaryDirectory directory;
  const auto path = directory.path / "model.plan";
  plan::write_plan(path, sample_plan());
  const auto good = read_bytes(path);
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    auto bad = good;
    const std::size_t at = i < 64 ? static_cast<std::size_t>(i) : random() % bad.size();
    bad[at] = static_cast<char>(bad[at] ^ static_cast<char>(1U << (random() % 8)));
    write_bytes(path, bad);
    INFO("byte " << at);
    CHECK_FALSE(refusal(path).empty());
  }
}

TEST_CASE("a truncated plan and one with trailing bytes are refused") {
  const TemporaryDirectory directory;
  const auto path = directory.path / "model.plan";
  plan::write_plan(path, sample_plan(1));
  const auto good = read_bytes(path);
  for (std::size_t bytes = 0; bytes < good.size(); bytes += bytes < 80 ? 1 : 13) {
    write_bytes(path, {good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes)});
    INFO("cut to " << bytes);
    CHECK_FALSE(refusal(path).empty());
  }
  auto longer = good;
  longer.push_back(0);
  write_bytes(path, longer);
  CHECK_THAT(refusal(path), Catch::Contains("extra bytes at the end"));
}

TEST_CASE("damage under a valid checksum is refused or read, without out-of-bounds access") {
  const auto good = plan::serialize_plan(sample_plan(2));
  const std::vector<std::byte> payload(good.begin() + plan::kHeaderBytes, good.end());
  CHECK(forged(payload) == good);
  std::mt19937 random(2);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    auto bad = payload;
    for (unsigned flips = 1 + random() % 4; flips > 0; --flips)
      bad[random() % bad.size()] = static_cast<std::byte>(random() % 3 == 0 ? 0xFF : random());
    try {
      (void)plan::parse_plan(forged(bad), "forged");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kPlan);
      ++refused;
    }
  }
  CHECK(refused > 300);
  CHECK_THROWS_AS(plan::parse_plan(forged({}), "forged"), Error);
}

TEST_CASE("a small plan that would unpack to gigabytes is refused") {
  flatbuffers::FlatBufferBuilder builder;
  const auto operands = builder.CreateVectorOfStructs(std::vector<plan::Operand>(30'000));
  const auto constants = builder.CreateVector(std::vector<std::int64_t>(100'000));
  const auto launch = plan::CreateLaunch(builder, 0, 1, 1, 0, false, constants).Union();
  const bool by_body = GENERATE(false, true);
  std::vector<flatbuffers::Offset<plan::Step>> steps;
  for (int i = 0; i < 20'000; ++i) {
    plan::StepBuilder step(builder);
    if (by_body) {
      step.add_body_type(plan::Body::Launch);
      step.add_body(launch);
    } else {
      step.add_operands(operands);
    }
    steps.push_back(step.Finish());
  }
  const auto all = builder.CreateVector(steps);
  plan::ProgramBuilder program(builder);
  program.add_load_steps(all);
  const std::vector programs{program.Finish()};
  const auto list = builder.CreateVector(programs);
  plan::PlanBuilder root(builder);
  root.add_version(plan::kPlanVersion);
  root.add_programs(list);
  plan::FinishPlanBuffer(builder, root.Finish());
  const auto image = forged(std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize())));
  CHECK(image.size() < 2'000'000);
  CHECK_THROWS_WITH(plan::parse_plan(image, "bomb"), Catch::Contains("exceed the file's size"));
}

TEST_CASE("a step with an unknown or inconsistent type is refused") {
  const auto with = [](plan::Body kind, bool has_body) {
    flatbuffers::FlatBufferBuilder builder;
    const auto launch = plan::CreateLaunch(builder, 0, 1, 1).Union();
    plan::StepBuilder step(builder);
    step.add_body_type(kind);
    if (has_body) step.add_body(launch);
    const auto steps = builder.CreateVector(std::vector{step.Finish()});
    plan::ProgramBuilder program(builder);
    program.add_load_steps(steps);
    const auto programs = builder.CreateVector(std::vector{program.Finish()});
    plan::PlanBuilder root(builder);
    root.add_version(plan::kPlanVersion);
    root.add_programs(programs);
    plan::FinishPlanBuffer(builder, root.Finish());
    return forged(std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize())));
  };
  CHECK_NOTHROW(plan::parse_plan(with(plan::Body::Launch, true), "whole"));
  CHECK_NOTHROW(plan::parse_plan(with(plan::Body::NONE, false), "none"));
  for (const auto& image :
       {with(plan::Body::Launch, false), with(plan::Body::NONE, true), with(static_cast<plan::Body>(99), true)})
    CHECK_THROWS_WITH(plan::parse_plan(image, "odd"), Catch::Contains("have an unknown type"));
}

TEST_CASE("files that are not plans are refused with their name and the reason") {
  const TemporaryDirectory directory;
  CHECK_THAT(refusal(directory.path / "absent"), Catch::Contains("No such file"));
  CHECK_THAT(refusal(directory.path), Catch::Contains("not a regular file"));
  const auto path = directory.path / "other";
  write_bytes(path, {});
  CHECK_THAT(refusal(path), Catch::Contains("not a forge plan"));
  write_bytes(path, std::vector<char>(1 << 20, 'G'));
  CHECK_THAT(refusal(path), Catch::Contains("not a forge plan"));
  CHECK_FALSE(plan::looks_like_plan(path));
  const auto fifo = directory.path / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THAT(refusal(fifo), Catch::Contains("not a regular file"));
}

TEST_CASE("a plan of another version is refused with both versions") {
  const TemporaryDirectory directory;
  const auto path = directory.path / "model.plan";
  plan::write_plan(path, sample_plan());
  auto bytes = read_bytes(path);
  bytes[12] = 77;  // the u32 plan version of the header
  write_bytes(path, bytes);
  CHECK_THAT(refusal(path), Catch::Contains("format 1.77") && Catch::Contains("compile the model again"));
  plan::PlanT unset = sample_plan();
  unset.version = 0;
  CHECK_THROWS_AS(plan::serialize_plan(unset), Error);
}

TEST_CASE("a plan bound to a cache key is only accepted for that key") {
  const auto image = plan::serialize_plan(sample_plan(), "key-a");
  CHECK_NOTHROW(plan::parse_plan(image, "entry", "key-a"));
  CHECK_NOTHROW(plan::parse_plan(image, "entry"));
  CHECK_THROWS_AS(plan::parse_plan(image, "entry", "key-b"), Error);
  CHECK_THROWS_AS(plan::parse_plan(plan::serialize_plan(sample_plan()), "entry", "key-a"), Error);
}

TEST_CASE("a failed write leaves the old plan") {
  const TemporaryDirectory directory;
  CHECK_THROWS_AS(plan::write_plan(directory.path / "absent" / "model.plan", sample_plan()), Error);
  const auto path = directory.path / "taken";
  std::filesystem::create_directories(path / "inner");
  CHECK_THROWS_AS(plan::write_plan(path, sample_plan()), Error);  // rename onto a directory fails
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path), {}) == 1);
}

}  // namespace
}  // namespace forge

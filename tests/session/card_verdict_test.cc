// The self-test verdict of a card: tested once, cached, and used by later processes; and which outputs of a self-test
// process count as a report.

#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "session/self_test/card_verdict.h"
#include "support/error.h"
#include "tests/null_driver/null_driver.h"
#include "tests/support/temp_dir.h"

namespace forge::session {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using forge::tests::TempDir;

CardIdentity sample_card() {
  return {.device = "hip:0",
          .name = "Radeon",
          .arch = "gfx1100",
          .driver = "6.4",
          .driver_library = "/lib/libamdhip64.so.6.4",
          .compiler = "clang 19",
          .compiler_file = "clang 19 /bin/clang 1 2.3"};
}

SelfTestReport good_report() {
  return {.results = {{.name = "shuffle", .ok = true}, {.name = "dot4", .ok = true}}};
}
SelfTestReport bad_report() {
  return {.results = {{.name = "shuffle", .ok = true},
                      {.name = "shuffle_xor<16>", .ok = false, .detail = "3 of 512 words are wrong"},
                      {.name = "dot4", .ok = false, .detail = "all are"}}};
}

/// A verdict cache in its own folder, reopened for each use as each process does, with a simulated self-test.
class Desk {
 public:
  explicit Desk(SelfTestReport report) : report(std::move(report)) {}

  /// The error line of requiring a verdict; empty if the card may be used.
  std::string require(const CardIdentity& card) {
    auto verdicts = open();
    try {
      require_passing_self_test(card, verdicts,
                                {.run =
                                     [&] {
                                       ++runs;
                                       return report;
                                     },
                                 .note = [&](const std::string& line) { notes.push_back(line); },
                                 .waiting = [] {}});
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kDevice);
      CHECK(error.exit_status() == 4);
      return error.line();
    }
    return {};
  }
  VerdictCache open() {
    return {{.directory = directory}, [&](const std::string& line) { warnings.push_back(line); }};
  }

  TempDir dir;
  fs::path directory = dir.file("cache");
  SelfTestReport report;
  int runs = 0;
  std::vector<std::string> notes, warnings;
};

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}
std::string read_text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("a card that passes is tested once, and a line says so") {
  Desk desk(good_report());
  CHECK(desk.require(sample_card()).empty());
  CHECK(desk.runs == 1);
  REQUIRE(desk.notes.size() == 2);
  CHECK(desk.notes[0] == "note: testing Radeon (gfx1100, driver 6.4, clang 19) once, before the first run on it");
  CHECK_THAT(desk.notes[1], Contains("note: self-test: 2 of 2 passed on Radeon (gfx1100, driver 6.4, clang 19) in "));
  CHECK(desk.require(sample_card()).empty());
  CHECK(desk.runs == 1);
  CHECK(desk.notes.size() == 2);
  CHECK(desk.warnings.empty());

  const auto entry = desk.open().entry_path(sample_card());
  struct stat status{};
  REQUIRE(::stat(entry.parent_path().c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  REQUIRE(::stat(entry.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK(std::distance(fs::directory_iterator(entry.parent_path()), {}) == 1);  // no lock file and no temporary file
}

TEST_CASE("a card that fails is refused in one line, the second time from the cache") {
  Desk desk(bad_report());
  const auto first = desk.require(sample_card());
  CHECK(
      first ==
      "error[device]: Radeon (gfx1100, driver 6.4, clang 19) fails forge's self-test: shuffle_xor<16> (3 of 512 words "
      "are wrong), dot4; forge-inspect devices --self-test runs it again");
  CHECK(desk.require(sample_card()) == first);
  CHECK(desk.runs == 1);
}

TEST_CASE("a verdict is bound to driver, compiler and card, not to the card's slot") {
  Desk desk(good_report());
  const auto base = sample_card();
  CHECK(desk.require(base).empty());
  auto moved = base;
  moved.device = "hip:1";
  CHECK(desk.require(moved).empty());
  CHECK(desk.runs == 1);
  for (std::string CardIdentity::* part :
       {&CardIdentity::name, &CardIdentity::arch, &CardIdentity::driver, &CardIdentity::driver_library,
        &CardIdentity::compiler, &CardIdentity::compiler_file}) {
    auto other = base;
    other.*part += "x";
    const int before = desk.runs;
    CHECK(desk.require(other).empty());
    CHECK(desk.runs == before + 1);
  }
}

TEST_CASE("a damaged verdict gives a line, and the card is tested again") {
  Desk desk(bad_report());
  (void)desk.require(sample_card());
  const auto entry = desk.open().entry_path(sample_card());
  const auto whole = read_text_of(entry);
  desk.report = good_report();
  for (const auto& damaged : {std::string(), whole.substr(0, whole.size() - 1), whole + "x", [&] {
                                auto other = whole;
                                other[other.find("failed")] = 'p';
                                return other;
                              }()}) {
    write_text(entry, damaged);
    desk.warnings.clear();
    const int before = desk.runs;
    CHECK(desk.require(sample_card()).empty());
    CHECK(desk.runs == before + 1);
    REQUIRE(!desk.warnings.empty());
    CHECK_THAT(desk.warnings[0], Contains("is damaged; ignored, testing the card again"));
  }
  CHECK(desk.require(sample_card()).empty());
}

TEST_CASE("a card that could not be tested may be used, and is tested the next time") {
  Desk desk({.results = {}, .untested = "its memory is full"});
  CHECK(desk.require(sample_card()).empty());
  CHECK(desk.notes.back() == "note: self-test: not tested: Radeon (gfx1100, driver 6.4, clang 19): its memory is full");
  desk.report = bad_report();
  CHECK(!desk.require(sample_card()).empty());
  CHECK(desk.runs == 2);
}

TEST_CASE("without a cache a card is tested each time") {
  Desk desk(good_report());
  desk.directory.clear();
  for (int i = 1; i <= 2; ++i) {
    CHECK(desk.require(sample_card()).empty());
    CHECK(desk.runs == i);
  }
  desk.directory = desk.dir.file("file");
  write_text(desk.directory, "no folder");
  CHECK(desk.require(sample_card()).empty());
  CHECK(desk.runs == 3);
  REQUIRE(desk.warnings.size() == 1);
  CHECK_THAT(desk.warnings[0], Contains("cannot store self-test verdicts"));
}

TEST_CASE("of two processes that need a card's verdict one tests it and the other waits") {
  const TempDir dir;
  std::atomic<int> runs = 0, waited = 0;
  const auto use = [&] {
    VerdictCache verdicts({.directory = dir.file("cache")}, [](const std::string&) {});
    const auto verdict = verdicts.get_or_test(
        sample_card(),
        [&] {
          ++runs;
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          return bad_report();
        },
        [&] { ++waited; });
    return verdict && !verdict->passed;
  };
  auto one = std::async(std::launch::async, use), other = std::async(std::launch::async, use);
  CHECK((one.get() && other.get()));
  CHECK(runs == 1);
  CHECK(waited <= 1);
}

TEST_CASE("a new verdict replaces the old one") {
  Desk desk(bad_report());
  CHECK(!desk.require(sample_card()).empty());
  desk.open().store(sample_card(), verdict_of(good_report()));
  CHECK(desk.require(sample_card()).empty());
  CHECK(desk.runs == 1);
}

TEST_CASE("a self-test process's output is read as a report, complete or not") {
  const TempDir dir;
  const auto program = fs::path(dir.file("program"));
  std::vector<std::string> stages;
  using namespace std::chrono_literals;
  const auto run = [&](const std::string& script, const SelfTestLimits& limits = {}) {
    write_text(program, "#!/bin/sh\n" + script);
    fs::permissions(program, fs::perms::owner_all);
    stages.clear();
    return run_self_test_process(
        program, "hip:3", true, [&](const std::string& stage) { stages.push_back(stage); }, limits);
  };
  auto report = run(R"(printf 'stage\tcompiling\nok\t1.5\tshuffle\t\nfail\t2\tdot4\tit is off\nend\n')");
  CHECK(report.untested.empty());
  REQUIRE(report.results.size() == 2);
  CHECK((report.results[0].ok && report.results[0].name == "shuffle" && report.results[0].ms == 1.5));
  CHECK((!report.results[1].ok && report.results[1].name == "dot4" && report.results[1].detail == "it is off"));
  CHECK(stages == std::vector<std::string>{"compiling"});
  CHECK(report.problem() == "dot4 (it is off)");

  CHECK(run("[ \"$*\" = 'self-test --device hip:3' ] && printf 'ok\\t1\\tx\\t\\nend\\n'").passed());
  CHECK(run("printf 'untested\\tit is full\\n'").untested == "it is full");

  report = run("printf 'ok\\t1\\tx\\t\\nstage\\trunning lanes\\n'; kill -SEGV $$");
  CHECK(report.problem() == "running lanes (the process crashed with SIGSEGV)");
  report = run("exit 7");
  CHECK(report.problem() == "starting the driver (the process ended with status 7)");
  report = run("kill -KILL $$");
  CHECK_THAT(report.untested, Contains("was killed"));
  report = run("printf 'stage\\trunning tiles\\n'; exec sleep 60", {.running = 1500ms});
  CHECK(report.problem() == "running tiles (it did not end within 1.5 s)");
  report = run("printf 'stage\\tcompiling\\n'; exec sleep 60", {.compiling = 1500ms});
  CHECK(report.untested == "its self-test took more than 1.5 s (compiling)");
  report = run("while :; do printf 'stage\\trunning in circles\\n'; sleep 0.05; done", {.whole = 1500ms});
  CHECK_THAT(report.untested, Contains("took more than 1.5 s"));
  report = run_self_test_process(dir.file("nothing"), "hip:0", true, [](const std::string&) {});
  CHECK_THAT(report.untested, Contains("cannot be started"));
  CHECK(!report.passed());
}

}  // namespace forge::session

// The plan cache: a plan is built once, also by concurrent processes; damaged entries are rebuilt; the cache stays
// below its size limit; a process killed at any moment leaves a cache that works.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <thread>

#include "runtime/plan/cache.h"
#include "support/error.h"
#include "tests/runtime/plan_samples.h"

namespace forge {
namespace {

using namespace std::chrono_literals;
using test::read_bytes;
using test::sample_plan;
using test::TemporaryDirectory;
using test::write_bytes;

plan::PlanCache cache_in(const std::filesystem::path& directory, std::uint64_t bytes_max = plan::kCacheBytesDefault) {
  return plan::PlanCache({.directory = directory, .bytes_max = bytes_max});
}

/// A build that must not be called.
plan::PlanT never() {
  throw std::runtime_error("built although the entry is there");
}

std::size_t files_in(const std::filesystem::path& directory) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

TEST_CASE("a plan is built once and then read") {
  const TemporaryDirectory directory;
  const auto cache = cache_in(directory.path / "deep" / "cache");
  const auto first = cache.get_or_build("abc", [] { return sample_plan(4); });
  CHECK(first.built);
  CHECK(first.warnings.empty());
  CHECK(first.path == cache.entry_path("abc"));
  const auto second = cache.get_or_build("abc", never);
  CHECK_FALSE(second.built);
  CHECK(plan::serialize_plan(second.plan) == plan::serialize_plan(first.plan));
  CHECK(files_in(directory.path / "deep" / "cache") == 1);  // no lock file and no temporary file

  struct stat status{};
  REQUIRE(::stat((directory.path / "deep" / "cache").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  REQUIRE(::stat(first.path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK_THROWS_AS(cache.get_or_build("../escape", never), Error);
}

TEST_CASE("a failing build is reported and leaves no entry") {
  const TemporaryDirectory directory;
  const auto cache = cache_in(directory.path);
  CHECK_THROWS_AS(cache.get_or_build("abc", [] -> plan::PlanT { throw Error(ErrorCode::kDevice, "no compiler"); }),
                  Error);
  CHECK(files_in(directory.path) == 0);
  CHECK(cache.get_or_build("abc", [] { return sample_plan(); }).built);
}

TEST_CASE("damaged and foreign entries are named, ignored and rebuilt") {
  const TemporaryDirectory directory;
  const auto cache = cache_in(directory.path);
  (void)cache.get_or_build("abc", [] { return sample_plan(); });
  (void)cache.get_or_build("other", [] { return sample_plan(9); });
  const auto path = cache.entry_path("abc");
  const auto good = read_bytes(path);
  const auto recovers = [&](const std::string& reason) {
    const auto again = cache.get_or_build("abc", [] { return sample_plan(); });
    CHECK(again.built);
    REQUIRE(again.warnings.size() == 1);
    CHECK_THAT(again.warnings[0], Catch::Contains(reason) && Catch::Contains("abc.plan"));
    CHECK(again.warnings[0].find('\n') == std::string::npos);
    CHECK(read_bytes(path) == good);
    CHECK_FALSE(cache.get_or_build("abc", never).built);
  };
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    auto bad = good;
    bad[random() % bad.size()] ^= 16;
    write_bytes(path, bad);
    recovers("error[plan]");
  }
  write_bytes(path, {good.begin(), good.begin() + 100});
  recovers("truncated");
  std::filesystem::copy_file(cache.entry_path("other"), path, std::filesystem::copy_options::overwrite_existing);
  recovers("another cache key");
}

TEST_CASE("an unusable cache folder costs a warning, not the plan") {
  const TemporaryDirectory directory;
  const auto file = directory.path / "file";
  write_bytes(file, {'x'});
  const auto loses_nothing = [](const plan::PlanCache& cache) {
    const auto got = cache.get_or_build("abc", [] { return sample_plan(5); });
    CHECK(got.built);
    CHECK(got.path.empty());
    CHECK(plan::serialize_plan(got.plan) == plan::serialize_plan(sample_plan(5)));
    REQUIRE(got.warnings.size() == 1);
    CHECK_THAT(got.warnings[0], Catch::Contains("error[cache]") && Catch::Contains("used from memory"));
  };
  loses_nothing(cache_in(file));
  loses_nothing(cache_in(file / "below"));
  loses_nothing(cache_in("/proc/forge-cannot-be-made"));
  const auto shared = directory.path / "shared";
  std::filesystem::create_directory(shared);
  std::filesystem::permissions(shared, std::filesystem::perms::all);
  loses_nothing(cache_in(shared));
  if (::geteuid() != 0) {
    const auto sealed = directory.path / "sealed";
    std::filesystem::create_directory(sealed);
    std::filesystem::permissions(sealed, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    loses_nothing(cache_in(sealed));
  }
  const auto none = plan::PlanCache({.directory = {}}).get_or_build("abc", [] { return sample_plan(); });
  CHECK((none.built && none.warnings.empty() && none.path.empty()));
}

TEST_CASE("the cache stays below its size limit, evicts the least recently used entry, and keeps foreign files") {
  const TemporaryDirectory directory;
  const auto entry_bytes = plan::serialize_plan(sample_plan(1, 100'000)).size();
  const auto cache = cache_in(directory.path, 3 * entry_bytes + 1000);
  write_bytes(directory.path / "notes.txt", std::vector<char>(500'000));
  write_bytes(directory.path / "not a key.plan", std::vector<char>(500'000));
  const auto put = [&](const char* key) { (void)cache.get_or_build(key, [] { return sample_plan(1, 100'000); }); };
  const auto has = [&](const char* key) { return std::filesystem::exists(cache.entry_path(key)); };
  const auto age = [&](const char* key, int hours) {
    std::filesystem::last_write_time(cache.entry_path(key),
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  put("a"), put("b"), put("c");
  age("a", 3), age("b", 2), age("c", 1);
  put("a");  // now the most recently used
  put("d");
  CHECK((has("a") && !has("b") && has("c") && has("d")));
  CHECK(files_in(directory.path) == 5);

  const auto large = cache.get_or_build("large", [&] { return sample_plan(1, 4 * entry_bytes); });
  CHECK((large.built && large.path.empty() && large.warnings.size() == 1));
  CHECK((has("a") && has("c") && has("d")));
}

TEST_CASE("the cache's folder and size come from the environment") {
  const auto with = [](const char* own, const char* xdg, const char* home, const char* bytes) {
    const auto set = [](const char* name, const char* value) {
      value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
    };
    set("FORGE_CACHE_DIR", own), set("XDG_CACHE_HOME", xdg), set("HOME", home), set("FORGE_CACHE_MAX_BYTES", bytes);
    return plan::CacheOptions::from_environment();
  };
  CHECK(with("/own", "/xdg", "/someone", nullptr).directory == "/own");
  CHECK(with(nullptr, "/xdg", "/someone", nullptr).directory == "/xdg/forge");
  CHECK(with(nullptr, "relative", "/someone", nullptr).directory == "/someone/.cache/forge");
  CHECK(with("", "", "/someone", "12").bytes_max == 12);
  CHECK(with("", "", "/someone", nullptr).bytes_max == plan::kCacheBytesDefault);
  CHECK_THROWS_AS(with("/own", "", "/someone", "4G"), Error);
  CHECK_THROWS_AS(with("/own", "", "/someone", "-1"), Error);
}

/// Appends one byte to `log`. The file's size is the number of builds over all processes.
void count(const std::filesystem::path& log) {
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (fd < 0 || ::write(fd, "x", 1) != 1) ::_exit(9);
  ::close(fd);
}

TEST_CASE("eight processes on an empty cache build once") {
  for (int round = 0; round < 5; ++round) {
    const TemporaryDirectory directory;
    const auto log = directory.path / "builds";
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
      const pid_t pid = ::fork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        const auto got = cache_in(directory.path / "cache").get_or_build("abc", [&] {
          count(log);
          std::this_thread::sleep_for(30ms);
          return sample_plan(20);
        });
        const bool right = got.warnings.empty() && got.plan.programs.at(0)->variants.at(0)->steps.size() == 20;
        ::_exit(right ? 0 : 1);
      }
      children.push_back(pid);
    }
    for (const pid_t pid : children) {
      int status = -1;
      REQUIRE(::waitpid(pid, &status, 0) == pid);
      CHECK(status == 0);
    }
    CHECK(read_bytes(log).size() == 1);
    CHECK(files_in(directory.path / "cache") == 1);
  }
}

TEST_CASE("a builder killed at any moment leaves a cache that works, and a waiter takes over") {
  const TemporaryDirectory directory;
  const auto cache = cache_in(directory.path / "cache");
  const auto slow_large_build = [] {
    std::this_thread::sleep_for(2ms);
    return sample_plan(50, 4'000'000);
  };
  std::mt19937 random(4);
  for (int round = 0; round < 50; ++round) {
    std::filesystem::remove(cache.entry_path("abc"));
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      (void)cache.get_or_build("abc", slow_large_build);
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 15'000));
    std::thread waiter;
    bool waited_right = true;
    if (round % 2 == 0)
      waiter = std::thread([&] {
        const auto got = cache.get_or_build("abc", slow_large_build);
        waited_right = got.warnings.empty() && !got.path.empty();
      });
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (waiter.joinable()) waiter.join();
    CHECK(waited_right);
    const auto got = cache.get_or_build("abc", slow_large_build);
    CHECK(got.warnings.empty());
    CHECK(got.plan.programs.at(0)->constants.size() == 4'000'000);
    CHECK_FALSE(cache.get_or_build("abc", never).built);
  }
  // A rebuild removes the temporary files that killed builders of the same key left, so at most those of the last round
  // remain.
  CHECK(files_in(directory.path / "cache") <= 3);
}

TEST_CASE("a waiter is told once that it waits") {
  const TemporaryDirectory directory;
  const auto cache = cache_in(directory.path);
  std::thread other;
  std::atomic<int> told = 0;
  const auto tell = [&] {
    ++told;
    told.notify_all();
  };
  (void)cache.get_or_build("abc", [&] {
    other = std::thread([&] { CHECK_FALSE(cache.get_or_build("abc", never, tell).built); });
    told.wait(0);
    return sample_plan();
  });
  other.join();
  CHECK(told == 1);
}

}  // namespace
}  // namespace forge

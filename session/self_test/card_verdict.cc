#include "session/self_test/card_verdict.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "codegen/gpu/compile/cache_entry.h"
#include "codegen/gpu/compile/compilers.h"
#include "runtime/plan/plan_file.h"
#include "session/device.h"
#include "support/error.h"
#include "support/os/cache_folder.h"
#include "support/os/console.h"
#include "support/os/key_lock.h"
#include "support/version.h"

namespace forge::session {
namespace {

namespace fs = std::filesystem;

/// First bytes of an entry. Its texts are: passed or failed, CardIdentity::text(), the problem.
constexpr std::string_view kMagic = "forge verdict 1\n";
constexpr std::uint64_t kVerdictBytesMax = std::uint64_t{1} << 20;  ///< size limit of all verdicts: some thousands
constexpr std::string_view kPassed = "passed", kFailed = "failed";

bool is_there(const fs::path& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0;
}

fs::path real_path(const std::string& path) {
  std::error_code failed;
  auto real = fs::canonical(path, failed);
  return failed ? fs::path(path) : real;
}

}  // namespace

std::string CardIdentity::text() const {
  return fmt::format("{} ({}, driver {}, {})", printable(name, 100), printable(arch), printable(driver),
                     printable(compiler));
}

std::string CardIdentity::key() const {
  return codegen::kernel_key({name, arch, driver, driver_library, compiler, compiler_file, kVersion, kBuildId});
}

CardIdentity identify_card(const driver::Driver& driver, const driver::DeviceInfo& card) {
  const auto* target = codegen::find_target(card.target);
  invariant(target != nullptr, "ST-001", "a card that is tested has a target");
  const auto compiler = codegen::choose_compiler(codegen::find_compilers(target->vendor), *target);
  return {.device = fmt::format("{}:{}", driver::device_prefix(driver.vendor()), card.ordinal),
          .name = card.name,
          .arch = card.arch,
          .driver = driver.version(),
          .driver_library = real_path(driver.library()).native(),
          .compiler = compiler.name,
          .compiler_file = codegen::compiler_identity(compiler)};
}

VerdictCache::VerdictCache(plan::CacheOptions options, std::function<void(const std::string&)> note)
    : options_(std::move(options)), note_(std::move(note)) {
  if (!options_.directory.empty() && options_.bytes_max > 0) folder_ = options_.directory / kVerdictFolder;
}

fs::path VerdictCache::entry_path(const CardIdentity& card) const {
  return folder_.empty() ? fs::path() : folder_ / (card.key() + std::string(kVerdictSuffix));
}

void VerdictCache::give_up(const std::string& why) {
  note_(Error(ErrorCode::kCache, fmt::format("cannot store self-test verdicts in {}", printable(folder_.native(), 200)),
              why, "the GPU is tested at each start; set FORGE_CACHE_DIR to a writable directory")
            .line());
  folder_.clear();  // warn once
}

bool VerdictCache::usable() {
  if (folder_.empty() || std::exchange(prepared_, true)) return !folder_.empty();
  const auto why = prepare_cache_subfolder(folder_);
  if (!why.empty()) give_up(why);
  return !folder_.empty();
}

std::optional<Verdict> VerdictCache::find(const CardIdentity& card) {
  if (!usable()) return std::nullopt;
  const auto path = entry_path(card);
  if (!is_there(path)) return std::nullopt;
  const auto texts = codegen::read_cache_entry(path, kMagic, card.key());
  if (texts && texts->size() == 3 && ((*texts)[0] == kPassed || (*texts)[0] == kFailed)) {
    touch_cache_file(path);
    return Verdict{.passed = (*texts)[0] == kPassed, .problem = (*texts)[2]};
  }
  if (is_there(path))
    note_(Error(ErrorCode::kCache, fmt::format("{} is damaged", printable(path.native(), 200)), {},
                "ignored, testing the card again")
              .line());
  return std::nullopt;
}

void VerdictCache::store(const CardIdentity& card, const Verdict& verdict) {
  if (!usable()) return;
  const auto entry = codegen::cache_entry(
      kMagic, card.key(), {std::string(verdict.passed ? kPassed : kFailed), card.text(), verdict.problem});
  try {
    remove_cache_temporaries(folder_, kVerdictSuffix);
    plan::write_image(entry_path(card), std::as_bytes(std::span(entry)), plan::FileAccess::kOwner);
    evict_cache_files(cache_files(folder_, kVerdictSuffix), kVerdictBytesMax, entry_path(card));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
    give_up(strip_error_code(error.line()));
  }
}

std::optional<Verdict> VerdictCache::get_or_test(const CardIdentity& card, const std::function<SelfTestReport()>& test,
                                                 const std::function<void()>& waiting) {
  if (auto known = find(card)) return known;
  std::optional<KeyLock> lock;
  if (usable()) {
    lock.emplace(folder_ / (card.key() + ".lock"), waiting);
    if (lock->error() != 0)
      give_up(std::generic_category().message(lock->error()));
    else if (is_there(entry_path(card)))
      if (auto known = find(card)) return known;
  }
  const auto report = test();
  if (!report.untested.empty()) return std::nullopt;
  auto verdict = verdict_of(report);
  store(card, verdict);
  return verdict;
}

Verdict verdict_of(const SelfTestReport& report) {
  return {.passed = report.passed(), .problem = report.problem()};
}

std::string summary_of(const CardIdentity& card, const SelfTestReport& report) {
  if (!report.untested.empty()) return fmt::format("not tested: {}: {}", card.text(), report.untested);
  return fmt::format("{} of {} passed on {} in {:.1f} s", report.results.size() - report.failed(),
                     report.results.size(), card.text(), report.seconds);
}

void require_passing_self_test(const CardIdentity& card, VerdictCache& verdicts, const CardTest& test) {
  const auto run = [&] {
    test.note(fmt::format("note: testing {} once, before the first run on it", card.text()));
    auto report = test.run();
    test.note("note: self-test: " + summary_of(card, report));
    return report;
  };
  const auto verdict = verdicts.get_or_test(card, run, test.waiting);
  if (!verdict || verdict->passed) return;
  throw Error(ErrorCode::kDevice, fmt::format("{} fails forge's self-test", card.text()), verdict->problem,
              "forge-inspect devices --self-test runs it again");
}

void require_passing_self_test(const driver::Driver& driver, const driver::DeviceInfo& info) {
  std::optional<CardIdentity> card;
  try {
    card = identify_card(driver, info);
  } catch (const Error& error) {
    note(fmt::format("note: {} is not tested: {}", printable(info.name), strip_error_code(error.line())));
    return;
  }
  VerdictCache verdicts(plan::CacheOptions::from_environment(), [](const std::string& line) { warn(line); });
  const auto run = [&]() -> SelfTestReport {
    const auto program = find_self_test_program();
    if (program.empty())
      return {.results = {}, .untested = "forge-inspect, which runs the self-test, is not in this program's folder"};
    auto report = run_self_test_process(program, card->device, true,
                                        [](const std::string& stage) { progress("testing the GPU: " + stage); });
    end_progress();
    return report;
  };
  require_passing_self_test(*card, verdicts,
                            {.run = run,
                             .note = [](const std::string& line) { note(line); },
                             .waiting = [] { progress("waiting for another process that tests this GPU"); }});
  end_progress();
}

}  // namespace forge::session

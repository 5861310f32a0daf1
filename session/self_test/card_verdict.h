#pragma once
// The verdict of a GPU's self-test: passed, or what failed. Verdicts are kept in the cache under a key of card, driver,
// compiler and forge version, so a card is tested once and again when one of these changes. Session calls
// require_passing_self_test before it runs anything on a GPU.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/driver/driver.h"
#include "runtime/plan/cache.h"
#include "session/self_test/self_test_process.h"

namespace forge::session {

inline constexpr const char* kVerdictFolder = "verdicts";  ///< folder in the cache
inline constexpr std::string_view kVerdictSuffix = ".verdict";

/// What a verdict applies to.
struct CardIdentity {
  std::string device;                   ///< "cuda:0"; not part of the key
  std::string name, arch;               ///< "NVIDIA H100", "sm_90"
  std::string driver, driver_library;   ///< "13.0" and the real path of the loaded library
  std::string compiler, compiler_file;  ///< "NVRTC 13.0" and the identity of the compiler's file

  /// "NVIDIA H100 (sm_90, driver 13.0, NVRTC 13.0)".
  [[nodiscard]] std::string text() const;
  /// The cache key of its verdict; includes forge's version.
  [[nodiscard]] std::string key() const;
};

/// Collects the identity. Errors: kDevice when no installed compiler supports the card.
[[nodiscard]] CardIdentity identify_card(const driver::Driver& driver, const driver::DeviceInfo& card);

struct Verdict {
  bool passed = false;
  std::string problem;  ///< what failed, one line; empty if passed
};

/// The verdicts in the cache folder. If the folder cannot be used, warns once; then every lookup finds nothing.
class VerdictCache {
 public:
  /// `note` receives warnings, one line each.
  VerdictCache(plan::CacheOptions options, std::function<void(const std::string&)> note);
  /// The stored verdict; nullopt if there is none, or if it is damaged (with a warning).
  [[nodiscard]] std::optional<Verdict> find(const CardIdentity& card);
  void store(const CardIdentity& card, const Verdict& verdict);
  /// The stored verdict, or else the result of `test`, which is stored. A lock per card lets one process test while the
  /// others wait; `waiting` is called before waiting. nullopt if the card could not be tested; that is not stored.
  [[nodiscard]] std::optional<Verdict> get_or_test(const CardIdentity& card,
                                                   const std::function<SelfTestReport()>& test,
                                                   const std::function<void()>& waiting);
  [[nodiscard]] std::filesystem::path entry_path(const CardIdentity& card) const;

 private:
  bool usable();
  void give_up(const std::string& why);
  plan::CacheOptions options_;
  std::filesystem::path folder_;  ///< empty: no cache
  std::function<void(const std::string&)> note_;
  bool prepared_ = false;
};

[[nodiscard]] Verdict verdict_of(const SelfTestReport& report);

/// How require_passing_self_test tests a card and reports it; tests replace these.
struct CardTest {
  std::function<SelfTestReport()> run;
  std::function<void(const std::string&)> note;
  std::function<void()> waiting;  ///< called when another process is testing the card
};

/// Returns if the card passed, now or earlier, or cannot be tested (with a note). Errors: kDevice, naming the failed
/// primitive, card, driver and compiler.
void require_passing_self_test(const CardIdentity& card, VerdictCache& verdicts, const CardTest& test);

/// The same with the user's cache and the self-test in a child process.
void require_passing_self_test(const driver::Driver& driver, const driver::DeviceInfo& card);

/// "98 of 98 passed on NVIDIA H100 (...) in 6.2 s", or how many failed, or why it was not tested.
[[nodiscard]] std::string summary_of(const CardIdentity& card, const SelfTestReport& report);

}  // namespace forge::session

#pragma once
// A card's verdict: it passed the self-test with this driver, compiler and forge, or what is wrong with it. Kept in the
// cache, so that a card is tested once, and again when one of these changes.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/driver/driver.h"
#include "runtime/plan/cache.h"
#include "session/self_test/self_test_process.h"

namespace forge::session {

inline constexpr const char* kVerdictFolder = "verdicts";  ///< in the cache
inline constexpr std::string_view kVerdictSuffix = ".verdict";

/// What a verdict is about.
struct CardIdentity {
  std::string device;                   ///< "cuda:0"; another place in the machine is the same card
  std::string name, arch;               ///< "NVIDIA H100", "sm_90"
  std::string driver, driver_library;   ///< "13.0" and the real path of what is loaded
  std::string compiler, compiler_file;  ///< "NVRTC 13.0", and what changes when another stands in its place

  /// "NVIDIA H100 (sm_90, driver 13.0, NVRTC 13.0)".
  [[nodiscard]] std::string text() const;
  /// Of its verdict, with forge's version.
  [[nodiscard]] std::string key() const;
};

/// Errors: kDevice when no compiler here makes code for the card.
[[nodiscard]] CardIdentity identify_card(const driver::Driver& driver, const driver::DeviceInfo& card);

struct Verdict {
  bool passed = false;
  std::string problem;  ///< of a card that did not, one line
};

class VerdictCache {
 public:
  /// `note` gets warnings, one line each.
  VerdictCache(plan::CacheOptions options, std::function<void(const std::string&)> note);
  /// Nothing also for a damaged one, which is told.
  [[nodiscard]] std::optional<Verdict> find(const CardIdentity& card);
  void store(const CardIdentity& card, const Verdict& verdict);
  /// The verdict, or `test`'s, which is then kept; of several processes one tests and the others wait. A report of a
  /// card that could not be tested is kept by nobody: then there is no verdict.
  [[nodiscard]] std::optional<Verdict> get_or_test(const CardIdentity& card,
                                                   const std::function<SelfTestReport()>& test,
                                                   const std::function<void()>& waiting);
  [[nodiscard]] std::filesystem::path entry_path(const CardIdentity& card) const;

 private:
  bool usable();
  void give_up(const std::string& why);
  plan::CacheOptions options_;
  std::filesystem::path folder_;  ///< empty: nothing is kept
  std::function<void(const std::string&)> note_;
  bool prepared_ = false;
};

[[nodiscard]] Verdict verdict_of(const SelfTestReport& report);

/// How a card is tested before the first plan runs on it, and whom it is told.
struct CardTest {
  std::function<SelfTestReport()> run;
  std::function<void(const std::string&)> note;
  std::function<void()> waiting;  ///< for another process that tests it
};

/// Returns when the card passed, now or before, or can't be tested, which is told. Errors: kDevice, in one line what is
/// wrong on which card, driver and compiler.
void require_sound_card(const CardIdentity& card, VerdictCache& verdicts, const CardTest& test);

/// The same with the user's cache and the self-test in a process of its own.
void require_sound_card(const driver::Driver& driver, const driver::DeviceInfo& card);

/// "98 of 98 passed on NVIDIA H100 (...) in 6.2 s", or how many failed, or why it was not tested.
[[nodiscard]] std::string summary_of(const CardIdentity& card, const SelfTestReport& report);

}  // namespace forge::session

#include "tools/inspect/self_test_command.h"

#include <fmt/format.h>

#include <vector>

#include "codegen/compile.h"
#include "session/device.h"
#include "session/self_test/card_verdict.h"
#include "support/error.h"
#include "support/json_text.h"
#include "support/os/console.h"

namespace forge::tools {
namespace {

struct Card {
  std::string device, name, target;
  std::optional<session::CardIdentity> identity;
  session::SelfTestReport report;
};

/// All GPUs whose driver can be opened, or the wanted one. The devices themselves are not opened here, so that the
/// child process has them to itself.
std::vector<Card> cards_of(const std::optional<session::GpuName>& wanted) {
  std::vector<Card> cards;
  for (const auto vendor : driver::kVendors) try {
      const auto driver = driver::Driver::open(vendor);
      for (const auto& info : driver.devices()) {
        Card card{.device = fmt::format("{}:{}", driver::device_prefix(vendor), info.ordinal),
                  .name = info.name,
                  .target = info.target,
                  .report = {}};
        if (wanted && (wanted->vendor != vendor || wanted->ordinal != info.ordinal)) continue;
        try {
          if (!codegen::needs_device(info.target))
            throw Error(ErrorCode::kDevice, fmt::format("forge has no kernels for {}", printable(info.target)));
          card.identity = session::identify_card(driver, info);
        } catch (const Error& error) {
          card.report.untested = strip_error_code(error.line());
        }
        cards.push_back(std::move(card));
      }
    } catch (const Error&) {
      continue;  // most machines have the driver of one vendor at most
    }
  return cards;
}

std::string summary(const Card& card) {
  if (card.identity) return summary_of(*card.identity, card.report);
  return fmt::format("not tested: {}: {}", printable(card.name), card.report.untested);
}

void write_card(JsonWriter& json, const Card& card) {
  json.open('{').field("device", card.device).field("name", card.name).field("target", card.target);
  json.field("driver", card.identity ? card.identity->driver : "");
  json.field("compiler", card.identity ? card.identity->compiler : "");
  json.field("passed", card.report.passed()).field("untested", card.report.untested);
  json.field("seconds", card.report.seconds).open("tests", '[');
  for (const auto& result : card.report.results) {
    json.open('{').field("name", result.name).field("ok", result.ok);
    json.field("detail", result.detail).field("ms", result.ms).close();
  }
  json.close().close();
}

void test(Card& card, session::VerdictCache& verdicts) {
  if (!card.identity) return;
  const auto program = session::find_self_test_program();
  if (program.empty()) {
    card.report.untested = "forge-inspect is not in this program's folder";
    return;
  }
  card.report = session::run_self_test_process(program, card.device, false, [&](const std::string& stage) {
    progress(fmt::format("testing {}: {}", card.device, stage));
  });
  end_progress();
  if (card.report.untested.empty()) verdicts.store(*card.identity, verdict_of(card.report));
}

}  // namespace

void self_test_devices(const std::optional<std::string>& device, bool json_wanted) {
  auto cards = cards_of(device ? std::optional(session::parse_gpu_name(*device)) : std::nullopt);
  if (cards.empty())
    throw Error(ErrorCode::kDevice,
                device ? fmt::format("there is no GPU {}", printable(*device)) : "there is no GPU to test", {},
                "forge-inspect devices lists devices and what is missing");
  session::VerdictCache verdicts(plan::CacheOptions::from_environment(), [](const std::string& line) { warn(line); });
  JsonWriter json;
  json.open('{').open("cards", '[');
  std::string bad;
  for (auto& card : cards) {
    test(card, verdicts);
    if (!card.report.passed()) bad = card.device;
    write_card(json, card);
    if (json_wanted) continue;
    std::string text;
    for (const auto& result : card.report.results)
      if (!result.ok) text += fmt::format("{} {}: {}\n", card.device, printable(result.name), result.detail);
    Output().write(fmt::format("{}self-test: {}\n", text, summary(card)));
  }
  if (json_wanted) Output().write(json.close().close().take());
  if (bad.empty()) return;
  throw Error(ErrorCode::kDevice, fmt::format("{} did not pass the self-test", bad), {},
              "try a newer driver and compiler; --device auto uses the CPU meanwhile");
}

}  // namespace forge::tools

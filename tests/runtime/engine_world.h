#pragma once
// A simulated world around the engine's core: clients that submit, cancel and disconnect, a device that fails, and a
// clock that the test moves. The world has no other source of randomness than the list of operations, so a failing
// script can be replayed and made smaller. Used by simulation_test.cc and, through script_search.h,
// planted_bugs_test.cc.

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/engine/engine_core.h"
#include "tests/runtime/fake_executor.h"

namespace forge::test {

/// One operation. The numbers a..d select a client, a prompt or a duration; they are taken modulo the number of
/// choices, so every value is valid.
struct Op {
  enum class Kind : std::uint8_t { kSubmit, kCancel, kStep, kFault, kWait, kAbandon };
  Kind kind = Kind::kStep;
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
};
std::ostream& operator<<(std::ostream& to, const Op& op);

class EngineWorld {
 public:
  explicit EngineWorld(const FakeShape& shape = {});

  /// Applies the operation and checks every invariant. Throws std::runtime_error or Error that names the broken
  /// invariant.
  void apply(const Op& op);
  /// Stops all new requests and faults, runs until everything has finished, and checks that this took a bounded number
  /// of steps and that all blocks were released.
  void finish();

  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] engine::EngineMetrics metrics() const { return core_->metrics(); }
  [[nodiscard]] std::size_t open() const { return clients_.size(); }
  /// Number of finished samples whose tokens were compared with those of the same request run alone.
  [[nodiscard]] std::uint64_t compared() const { return compared_; }

 private:
  struct Client {
    std::shared_ptr<engine::Stream> stream;
    std::vector<std::int32_t> prompt;
    runtime::SamplerParams sampling;
    std::size_t max_tokens = 0;
    engine::OutputKind wants = engine::OutputKind::kTokens;
    engine::Time rank{};
    std::vector<std::vector<std::int32_t>> tokens;  ///< generated so far, per sample
  };

  void submit(const Op& op);
  void step();
  void listen();
  void check_row(const Client& client, std::span<const float> row);
  void check_tokens(const Client& client, std::uint32_t sample, engine::FinishReason finish);
  void check_order();

  FakeShape shape_;
  engine::Time now_ = std::chrono::seconds(1);
  FakeExecutor executor_;
  std::unique_ptr<engine::EngineCore> core_;
  std::map<engine::RequestId, Client> clients_;
  std::set<engine::SequenceKey> running_, known_;  ///< state after the last step; known_ also has the waiting sequences
  std::uint64_t steps_ = 0, compared_ = 0, samples_ = 0, ended_ = 0;
};

}  // namespace forge::test

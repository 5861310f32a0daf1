#pragma once
// A simulated world around the engine's core: clients that come, go and lose patience, a device that fails, a clock
// that moves when it is told to. Everything follows from the operations, so a failure can be repeated and made smaller.

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

/// One thing that happens; numbers are taken modulo what there is.
struct Op {
  enum class Kind : std::uint8_t { kSubmit, kCancel, kStep, kFault, kWait, kAbandon };
  Kind kind = Kind::kStep;
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
};
std::ostream& operator<<(std::ostream& to, const Op& op);

class EngineWorld {
 public:
  explicit EngineWorld(const FakeShape& shape = {});

  /// Does it, and checks every invariant after it. Throws std::runtime_error or Error naming the one that is broken.
  void apply(const Op& op);
  /// No more clients, no more faults: everything ends within bounds, and everything is given back.
  void finish();

  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] engine::EngineMetrics metrics() const { return core_->metrics(); }
  [[nodiscard]] std::size_t open() const { return clients_.size(); }
  /// Samples that ended and gave exactly the tokens that they give alone.
  [[nodiscard]] std::uint64_t compared() const { return compared_; }

 private:
  struct Client {
    std::shared_ptr<engine::Stream> stream;
    std::vector<std::int32_t> prompt;
    runtime::SamplerParams sampling;
    std::size_t max_tokens = 0;
    engine::OutputKind wants = engine::OutputKind::kTokens;
    engine::Time rank{};
    std::vector<std::vector<std::int32_t>> tokens;  ///< of each sample
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
  std::set<engine::SequenceKey> running_, known_;  ///< after the last step; known_: those that wait too
  std::uint64_t steps_ = 0, compared_ = 0, samples_ = 0, ended_ = 0;
};

}  // namespace forge::test

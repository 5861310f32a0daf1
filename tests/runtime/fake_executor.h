#pragma once
// A device without arithmetic: its KV pool holds, at each position, a number made of all tokens up to there, read
// through the block tables as a model reads keys and values. So a wrong table, a block written by another, a copy that
// was not made or a prefix that does not fit changes the tokens. With a window it has a second KV group, whose
// positions must hold the same as far back as the window reaches. It fails when it is told to, and then nothing of its
// pools is worth anything.

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/executor.h"

namespace forge::test {

struct FakeShape {
  std::size_t vocab = 16, step_tokens = 16, sequences = 4, context = 48, block_tokens = 4, blocks = 24, window = 0;
};

class FakeExecutor final : public runtime::Executor {
 public:
  explicit FakeExecutor(const FakeShape& shape);

  enum class Fault : std::uint8_t { kNone, kRecoverable, kFatal, kForeign };
  /// The next step fails so.
  Fault next_fault = Fault::kNone;
  /// Called in each step, before anything of it is done.
  std::function<void()> in_step;
  std::uint64_t steps = 0;

  /// Logits behind `ids`, by the tokens alone.
  [[nodiscard]] std::vector<float> logits_of(std::span<const std::int32_t> ids) const;
  /// The hidden row behind `ids`.
  [[nodiscard]] static std::vector<float> row_of(std::span<const std::int32_t> ids);
  static constexpr std::size_t kHiddenWidth = 3;
  /// What a request must get: its tokens, when it runs alone on a device that works.
  [[nodiscard]] std::vector<std::int32_t> alone(std::span<const std::int32_t> prompt, runtime::SamplerParams params,
                                                std::size_t count) const;

  std::span<const float> forward(const runtime::StepBatch& batch) override;
  [[nodiscard]] std::string device_name() const override { return "fake"; }
  [[nodiscard]] std::size_t threads() const override { return 1; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return static_cast<std::int64_t>(shape_.blocks); }
  [[nodiscard]] const runtime::MemoryNeed& memory_need() const override { return need_; }
  [[nodiscard]] runtime::LoadReport load_report() const override { return {}; }
  [[nodiscard]] std::vector<runtime::StepProfile> profile() const override { return {}; }

 private:
  void fill_logits(std::uint64_t value, float* to) const;
  void fail_if_told();

  FakeShape shape_;
  runtime::MemoryNeed need_;
  std::vector<std::vector<std::uint64_t>> stores_;  ///< of each KV group [blocks, block_tokens]
  std::vector<float> logits_;
  std::vector<std::int32_t> ids_, positions_, sequence_, rows_, kv_length_, tables_;
};

}  // namespace forge::test

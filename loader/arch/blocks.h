#pragma once
// The blocks that families are built of. A family's file reads like its paper: which blocks, which options.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "ir/builder.h"
#include "loader/arch/family.h"

namespace forge::loader {

/// Hyper-parameters that nearly every decoder has, read and checked from "<family>.<key>" metadata.
struct DecoderParams {
  std::int64_t layers = 0, width = 0, ffn_width = 0, heads = 0, kv_heads = 0, head_dim = 0, rotary_dims = 0,
               context = 0, vocab = 0;
  float norm_eps = 0;
  ir::RopeFreqsAttrs rope;
  float rope_magnitude = 1;  ///< YaRN's factor on cos and sin
};

class DecoderBuilder {
 public:
  /// Reads the parameters. Errors name the key, and both numbers where metadata contradicts tensors.
  explicit DecoderBuilder(const Gguf& file);

  [[nodiscard]] const DecoderParams& params() const { return params_; }
  [[nodiscard]] const Gguf& file() const { return file_; }
  [[nodiscard]] ir::Builder& ir() { return ir_; }
  [[nodiscard]] std::string key(std::string_view suffix) const;
  /// Refuses by name when the file has a key with another value than forge can run.
  void refuse_if(bool condition, std::string_view feature) const;

  /// The weight [rows, cols] (cols 0: a vector [rows]; with experts [experts, rows, cols]); errors give both shapes.
  ir::Value weight(const std::string& name, std::int64_t rows, std::int64_t cols = 0, std::int64_t experts = 0);
  [[nodiscard]] bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  ir::Value embed();
  /// x . W^T (+ bias when the file has one): names are "<stem>.weight" and "<stem>.bias".
  ir::Value linear(ir::Value x, const std::string& stem, std::int64_t n, std::int64_t k);
  ir::Value norm(ir::Value x, const std::string& name);
  /// Self-attention of one layer on normalised rows, output projection included.
  ir::Value attention(ir::Value x, std::int64_t layer, ir::RopeMode mode);
  ir::Value gated_ffn(ir::Value x, std::int64_t layer, ir::Activation activation);
  /// Final norm and head on the rows whose logits are wanted; finishes the graph.
  PortableModel finish(ir::Value x);

 private:
  void read_rope();
  ir::Value rope_table();

  const Gguf& file_;
  ir::Graph graph_;
  ir::Builder ir_;
  std::string family_;
  DecoderParams params_;
  ir::Value kv_;
};

}  // namespace forge::loader

#pragma once
// EngineCore's record of a request. Private to engine_core.cc, engine_ahead.cc and engine_tokens.cc.

#include <memory>
#include <vector>

#include "runtime/engine/engine_core.h"

namespace forge::engine {

/// A request inside the engine. Samples of one request share the prompt and one stream.
struct EngineCore::Prepared {
  struct Sample {
    runtime::Sampler sampler;
    std::shared_ptr<runtime::Constrained> constrained = nullptr;  ///< null: not constrained
    bool ended = false;
  };
  Request request;
  RequestId id = 0;
  std::vector<Sample> samples;
  std::shared_ptr<Stream> stream;
  Usage usage;
  bool begun = false;  ///< has been part of a step
  /// Number of samples that have ended.
  std::size_t ended = 0;
  std::vector<double> sum;   ///< running sum of hidden rows, for embeddings
  std::size_t attempts = 0;  ///< failed steps since its last token
};

}  // namespace forge::engine

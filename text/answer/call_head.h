#pragma once
// What follows a marker that begins a call: decides how the call is written, and reads its name where that is outside
// of the arguments.

#include <memory>
#include <string_view>

#include "text/answer/call_reader.h"

namespace forge::text {

struct CallHead {
  Step step = Step::kMore;             ///< kMore: not decided yet; kDone: decided; kFail: no call
  std::size_t used = 0;                ///< bytes of the text that the head takes
  std::unique_ptr<CallReader> reader;  ///< of the rest; null if the call is complete, without arguments
};

/// `text` begins with a marker of `marker_size` bytes. If the name is read, the call is started in `sink`.
[[nodiscard]] CallHead read_call_head(CallContext context, std::string_view text, std::size_t marker_size, bool end,
                                      AnswerSink& sink);

}  // namespace forge::text

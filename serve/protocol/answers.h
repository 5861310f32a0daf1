#pragma once
// HTTP answers for a generation: one JSON body, or a stream of server-sent events (https://html.spec.whatwg.org,
// section 9.2). The JSON itself is written by a Dialect.

#include <memory>

#include "serve/http/http.h"
#include "serve/protocol/dialect.h"
#include "serve/registry.h"

namespace forge::serve {

/// Collects all choices and sends them in one body; an error of a choice becomes the response's status.
[[nodiscard]] std::unique_ptr<Answer> whole_answer(std::unique_ptr<Registry::Ticket> ticket,
                                                   std::unique_ptr<Dialect> dialect);
/// Streams pieces as they come. The status is 200 from the start; a later error is sent as an event {"error": ...}.
[[nodiscard]] std::unique_ptr<Answer> stream_answer(std::unique_ptr<Registry::Ticket> ticket,
                                                    std::unique_ptr<Dialect> dialect);

}  // namespace forge::serve

#pragma once
// A generation as an HTTP answer: whole, or as server-sent events (https://html.spec.whatwg.org, section 9.2).

#include <memory>

#include "serve/http/http.h"
#include "serve/protocol/dialect.h"
#include "serve/registry.h"

namespace forge::serve {

[[nodiscard]] std::unique_ptr<Answer> whole_answer(std::unique_ptr<Registry::Ticket> ticket,
                                                   std::unique_ptr<Dialect> dialect);
/// Its status is 200 from the start: what fails later is an event {"error": ...}.
[[nodiscard]] std::unique_ptr<Answer> stream_answer(std::unique_ptr<Registry::Ticket> ticket,
                                                    std::unique_ptr<Dialect> dialect);

}  // namespace forge::serve

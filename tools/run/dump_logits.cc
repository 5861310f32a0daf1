#include "tools/run/dump_logits.h"

#include <algorithm>

#include "support/os/atomic_file.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"

namespace forge::tools {

void dump_logits(session::Sequences& sequences, std::span<const std::int32_t> ids, const DumpOptions& options) {
  AtomicFile file(options.file);
  const std::size_t kept = options.last > 0 ? std::min(ids.size(), static_cast<std::size_t>(options.last)) : ids.size();
  const std::size_t first_row = ids.size() - kept;
  progress("computing logits");
  if (options.decode) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      check_interrupt();
      const auto logits = sequences.decode(ids.subspan(i, 1));
      if (i >= first_row) file.write(std::as_bytes(logits));
    }
  } else {
    sequences.prefill(0, ids, first_row, [&](std::span<const float> rows) { file.write(std::as_bytes(rows)); });
  }
  file.commit();
  end_progress();
}

}  // namespace forge::tools

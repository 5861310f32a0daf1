// Stub of forge-bench's estimates for a build without the GPU back-end.

#include "session/without_gpu.h"
#include "tools/bench/roofline.h"

namespace forge::tools {

void estimate_roofline(const BenchRequest&, const std::string&, RecordFormat, Output&) {
  session::refuse_without_gpu("estimate what GPUs execute");
}

}  // namespace forge::tools

// Stub of forge-bench's estimates for a build without the GPU back-end.

#include "session/without_gpu.h"
#include "tools/bench/roofline.h"
#include "tools/bench/tune.h"

namespace forge::tools {

void estimate_roofline(const BenchRequest&, const std::string&, RecordFormat, Output&) {
  session::refuse_without_gpu("estimate what GPUs execute");
}

void tune_card(const BenchRequest&, double, RecordFormat, Output&) {
  session::refuse_without_gpu("tune a GPU");
}

}  // namespace forge::tools

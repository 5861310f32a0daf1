#include <algorithm>
#include <array>

#include "codegen/back_end.h"
#include "codegen/cpu/cpu_target.h"
#include "codegen/gpu/gpu_target.h"
#include "support/error.h"

namespace forge::codegen {

std::span<const BackEnd> back_ends() {
  static const std::array kBackEnds{cpu_back_end(), gpu_back_end()};
  return kBackEnds;
}

const BackEnd* back_end_of(std::string_view target) {
  const auto found = std::ranges::find_if(back_ends(), [&](const BackEnd& one) { return one.find(target) == target; });
  return found == back_ends().end() ? nullptr : &*found;
}

const BackEnd& require_back_end(std::string_view target) {
  const auto* found = back_end_of(target);
  if (found == nullptr) throw Error(ErrorCode::kUsage, "target '" + printable(target) + "' is unknown");
  return *found;
}

}  // namespace forge::codegen

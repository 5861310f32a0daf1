#include <algorithm>
#include <array>

#include "codegen/back_end.h"
#include "codegen/cpu/cpu_target.h"
#include "codegen/gpu/gpu_target.h"

namespace forge::codegen {

std::span<const BackEnd> back_ends() {
  static const std::array kBackEnds{cpu_back_end(), gpu_back_end()};
  return kBackEnds;
}

const BackEnd* back_end_of(std::string_view target) {
  const auto found = std::ranges::find_if(back_ends(), [&](const BackEnd& one) { return one.find(target) == target; });
  return found == back_ends().end() ? nullptr : &*found;
}

}  // namespace forge::codegen

#include <algorithm>
#include <array>

#include "codegen/back_end.h"
#include "support/error.h"

namespace forge::codegen {

#define FORGE_BACK_END(name) BackEnd name##_back_end();
#include "codegen/back_ends.def"
#undef FORGE_BACK_END

std::span<const BackEnd> back_ends() {
#define FORGE_BACK_END(name) name##_back_end(),
  static const std::array kBackEnds{
#include "codegen/back_ends.def"
  };
#undef FORGE_BACK_END
  return kBackEnds;
}

namespace {

/// The first back-end for the host, or for devices; null if there is none.
const BackEnd* first(bool on_host) {
  const auto found = std::ranges::find(back_ends(), on_host, &BackEnd::on_host);
  return found == back_ends().end() ? nullptr : &*found;
}

}  // namespace

const BackEnd* host_back_end() {
  return first(true);
}
const BackEnd* device_back_end() {
  return first(false);
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

#include "text/constraint/schema.h"
#include "support/error.h"
namespace forge::text::constraint {
Language compile_schema(RegularPool&, std::string_view) {
  throw Error(ErrorCode::kUsage, "JSON schema", "not supported yet");
}
}  // namespace forge::text::constraint

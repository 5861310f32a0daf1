#include "tools/inspect/inspect_code.h"

#include <algorithm>
#include <span>
#include <string>

#include "codegen/gpu/compile/code_object.h"
#include "codegen/gpu/targets.h"
#include "runtime/plan/plan_file.h"
#include "support/error.h"
#include "support/os/atomic_file.h"

namespace forge::tools {
namespace {

bool is_plain_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed)
    throw Error(ErrorCode::kIo, "cannot create the folder " + printable(folder.native(), 200), failed.message());
}

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace

std::size_t write_code_objects(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto plan = plan::read_plan(path);
  std::size_t count = 0;
  for (const auto& program : plan.programs) {
    if (!program) continue;
    const auto* target = codegen::find_target(program->target);
    if (!is_plain_name(program->target))
      throw Error(ErrorCode::kPlan,
                  "the plan's target '" + printable(program->target) + "' is not a valid target name");
    const auto to = plan.programs.size() > 1 ? folder / program->target : folder;
    make_folder(to);
    for (const auto& object : program->code_objects) {
      if (!object || !is_plain_name(object->name))
        throw Error(ErrorCode::kPlan, "the plan has a code object without a valid name");
      const auto code = std::as_bytes(std::span(object->bytes));
      const auto suffix = target == nullptr ? ".bin" : codegen::code_object_suffix(*target);
      write_file(to / (object->name + std::string(suffix)), code);
      ++count;
      if (target == nullptr) continue;
      if (const auto text = codegen::disassemble(code, *target))
        write_file(to / (object->name + ".s"), std::as_bytes(std::span(*text)));
    }
  }
  return count;
}

}  // namespace forge::tools

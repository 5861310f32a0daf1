#include "codegen/describe_buffers.h"

#include <fmt/format.h>

#include <cstdint>

namespace forge::codegen {

std::vector<std::unique_ptr<plan::BufferT>> describe_buffers(const ir::Graph& graph, const ir::ValueNumbers& numbers,
                                                             const passes::Variant& variant) {
  // before[i]: number of plan steps before step i, that is, step i's number in the plan if it has a body. A buffer that
  // is alive over steps first..last exists in the plan if before[last + 1] > before[first].
  std::vector<std::uint32_t> before{0};
  std::vector<std::size_t> step_of(graph.id_bound());
  for (std::size_t step = 0; step < variant.steps.size(); ++step) {
    const auto& choice = variant.steps[step].choice;
    const bool stays = choice.step.body.type != plan::Body::NONE;
    before.push_back(before.back() + (stays ? 1 + static_cast<std::uint32_t>(choice.then.size()) : 0));
    for (const auto node : variant.steps[step].nodes) step_of[node] = step;
  }
  std::vector<std::unique_ptr<plan::BufferT>> out;
  const auto add = [&](std::size_t first, std::size_t last, std::int64_t offset, std::int64_t bytes) {
    if (before[last + 1] == before[first]) return false;
    auto buffer = std::make_unique<plan::BufferT>();
    buffer->first = before[first];
    buffer->last = before[last + 1] - 1;
    buffer->offset = offset;
    buffer->bytes = bytes;
    out.push_back(std::move(buffer));
    return true;
  };
  // A value is described by its number, the plan step that writes it, and its op and type.
  const auto add_value = [&](ir::Value value) {
    auto entry = std::make_unique<plan::BufferValueT>();
    entry->number = numbers.of(value);
    entry->step = before[step_of[value.node]];
    entry->text = fmt::format("{} {}", ir::op_def(graph.op(value.node)).name, graph.type(value).text());
    out.back()->values.push_back(std::move(entry));
  };
  for (const auto& buffer : variant.buffers) {
    if (!add(static_cast<std::size_t>(buffer.first), static_cast<std::size_t>(buffer.last), buffer.offset,
             buffer.bytes))
      continue;
    add_value(buffer.value);
    for (const auto alias : buffer.aliases) add_value(alias);
  }
  for (std::size_t step = 0; step < variant.steps.size(); ++step)
    if (const auto bytes = variant.steps[step].choice.scratch_bytes; bytes > 0)
      add(step, step, variant.steps[step].scratch_offset, bytes);
  return out;
}

}  // namespace forge::codegen

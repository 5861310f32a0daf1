#pragma once
// Files for people: the graph after a pass, a variant with its schedule.

#include <string>
#include <string_view>

#include "passes/program.h"

namespace forge::passes {

/// Steps with kernels, nodes, buffers and their places, as comments in front of the graph's text, so that the whole is
/// text that ir::parse reads.
std::string schedule_text(const Program& program, const Variant& variant);

/// The graph with step numbers, kernels and arena offsets on it; of one layer and what it touches when `layer` says so.
std::string schedule_dot(const Program& program, const Variant& variant, std::int32_t layer = ir::kNoLayer);

/// The layer in the middle of a program's graph, for pictures that a person can read; kNoLayer when there are none.
std::int32_t middle_layer(const ir::Graph& graph);

/// Bytes in a unit that people read: "9.2 kB" (powers of 1000).
std::string bytes_text(std::int64_t bytes);

/// Writes DIR/NN-name.suffix, making DIR. Throws Error(kIo).
void write_dump(const std::string& dir, std::size_t number, std::string_view name, std::string_view suffix,
                std::string_view text);

}  // namespace forge::passes

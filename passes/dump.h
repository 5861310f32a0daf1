#pragma once
// Dumps of compilation for people to read: the graph after each pass and each variant with its schedule, as IR text or
// as Graphviz DOT. The pass manager and the pipeline write them (PipelineOptions::dump_ir_dir, dump_dot_dir).

#include <string>
#include <string_view>

#include "passes/program.h"

namespace forge::passes {

/// The variant's steps (kernels, nodes, costs, buffers and arena offsets) as comments in front of the graph's text, so
/// that ir::parse still reads the whole.
std::string schedule_text(const Program& program, const Variant& variant);

/// The graph as DOT, labelled with step numbers, kernels and arena offsets. With `layer`, only that layer and the nodes
/// connected to it.
std::string schedule_dot(const Program& program, const Variant& variant, std::int32_t layer = ir::kNoLayer);

/// The layer in the middle of the graph, whose picture stands for all others; kNoLayer if the graph has no layers.
std::int32_t middle_layer(const ir::Graph& graph);

/// Bytes with a unit, in powers of 1000: "9.2 kB".
std::string bytes_text(std::int64_t bytes);

/// Writes DIR/NN-name.suffix and creates DIR if it is missing. Throws Error(kIo).
void write_dump(const std::string& dir, std::size_t number, std::string_view name, std::string_view suffix,
                std::string_view text);

}  // namespace forge::passes

// The null driver's modules, kernels, launches, captures and graphs.
#include "tests/null_driver/null_api.h"

namespace forge::driver {

/// The test's loader is called for each kernel; if it throws, nothing has been created.
Status NullApi::module_load(void** module, std::span<const std::byte> image) {
  return call("module_load", [&] {
    std::vector<NullKernelImage> kernels;
    if (!parse_null_image(image, &kernels)) return kNullInvalidImage;
    std::vector<NullKernel> loaded(kernels.size());
    for (std::size_t i = 0; s_.loader && i < kernels.size(); ++i) loaded[i] = s_.loader(kernels[i].name, image);
    if (const NullCode code = create(s_.modules, module); code != kNullSuccess) return code;
    NullModule& made = *s_.modules[*module];
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      made.functions.push_back(
          std::make_unique<NullFunction>(made.device, std::move(kernels[i]), std::move(loaded[i])));
      s_.functions[made.functions.back().get()] = made.functions.back().get();
    }
    return kNullSuccess;
  });
}

Status NullApi::module_unload(void* module) {
  return call("module_unload", [&] {
    const auto of = find(s_.modules, module);
    if (of == nullptr) return kNullInvalidHandle;
    s_.drain_all();
    for (const auto& function : of->functions) s_.functions.erase(function.get());
    s_.modules.erase(module);
    return kNullSuccess;
  });
}

Status NullApi::module_function(void** function, void* module, const char* name) {
  return call("module_function", [&] {
    const auto of = find(s_.modules, module);
    if (of == nullptr) return kNullInvalidHandle;
    for (const auto& candidate : of->functions) {
      if (candidate->image.name != name) continue;
      *function = candidate.get();
      return kNullSuccess;
    }
    return kNullNotFound;
  });
}

/// Validates the kernel, the block size, LDS and the arguments, copies the argument values, and enqueues the kernel.
Status NullApi::launch(const LaunchCall& c) {
  return on_stream("launch", c.stream, [&](const auto& on) -> int {
    const auto found = s_.functions.find(c.function);
    if (found == s_.functions.end() || found->second->device != on->device) return kNullInvalidHandle;
    const NullKernelImage& image = found->second->image;
    const std::uint64_t threads = std::uint64_t{c.block.x} * c.block.y * c.block.z;
    if (threads > static_cast<std::uint64_t>(image.facts.threads_per_block_max)) return kNullOutOfResources;
    if (c.lds_bytes + static_cast<std::uint64_t>(image.facts.lds_bytes) > s_.options.lds_bytes) {
      return kNullOutOfResources;
    }
    if (!image.arg_bytes.empty() && c.args == nullptr) return kNullInvalidValue;
    if (c.single_arg_bytes != 0 && !image.arg_bytes.empty() &&
        (image.arg_bytes.size() != 1 || image.arg_bytes[0] != c.single_arg_bytes)) {
      return kNullInvalidValue;  // a real driver would read beyond the struct
    }
    NullLaunch launch{image.name, c.grid, c.block, c.lds_bytes, c.hints, {}};
    for (std::size_t i = 0; i < image.arg_bytes.size(); ++i) {
      if (c.args[i] == nullptr) return kNullInvalidValue;
      const auto* value = static_cast<const std::byte*>(c.args[i]);
      launch.args.emplace_back(value, value + image.arg_bytes[i]);
    }
    return s_.enqueue(on, [this, launch = std::move(launch), loaded = found->second->loaded] {
      if (loaded) {
        loaded(launch);
        return kNullSuccess;
      }
      const auto kernel = s_.kernels.find(launch.kernel);
      if (kernel != s_.kernels.end()) kernel->second(launch);
      return kNullSuccess;
    });
  });
}

Status NullApi::function_facts(void* function, FunctionFacts* facts) {
  return on_function("function_facts", function, [&](const NullFunction& of) {
    *facts = of.image.facts;
    return kNullSuccess;
  });
}

Status NullApi::allow_lds(void* function, std::uint32_t bytes) {
  return on_function("allow_lds", function, [&](const NullFunction&) {
    return bytes <= s_.options.lds_bytes ? kNullSuccess : kNullInvalidValue;
  });
}

Status NullApi::occupancy(int* blocks, void* function, int threads, std::size_t lds_bytes) {
  return on_function("occupancy", function, [&](const NullFunction& of) {
    if (threads <= 0) return kNullInvalidValue;
    const std::size_t lds = lds_bytes + static_cast<std::size_t>(std::max(of.image.facts.lds_bytes, 0));
    *blocks = threads > of.image.facts.threads_per_block_max ? 0 : 2048 / threads;
    if (lds > 0) *blocks = std::min(*blocks, static_cast<int>(s_.options.lds_bytes / lds));
    return kNullSuccess;
  });
}

Status NullApi::capture_begin(void* stream) {
  return on_stream("capture_begin", stream, [&](const auto& on) { return s_.begin_capture(on); });
}

Status NullApi::capture_end(void* stream, void** graph) {
  *graph = nullptr;
  return on_stream("capture_end", stream, [&](const auto& on) {
    std::shared_ptr<NullGraph> made;
    const int code = s_.end_capture(on, &made);
    if (code == kNullSuccess) {
      *graph = made.get();
      s_.graphs[*graph] = made;
    }
    return code;
  });
}

Status NullApi::graph_destroy(void* graph) {
  return call("graph_destroy", [&] { return s_.graphs.erase(graph) == 0 ? kNullInvalidHandle : kNullSuccess; });
}

Status NullApi::graph_instantiate(void** exec, void* graph) {
  return call("graph_instantiate", [&] {
    const auto of = find(s_.graphs, graph);
    if (of == nullptr) return kNullInvalidHandle;
    const auto made = std::make_shared<NullGraph>(*of);
    *exec = made.get();
    s_.graph_execs[*exec] = made;
    return kNullSuccess;
  });
}

Status NullApi::graph_exec_destroy(void* exec) {
  return call("graph_exec_destroy",
              [&] { return s_.graph_execs.erase(exec) == 0 ? kNullInvalidHandle : kNullSuccess; });
}

Status NullApi::graph_upload(void* exec, void* stream) {
  return on_stream("graph_upload", stream, [&](const auto&) {
    return int{find(s_.graph_execs, exec) == nullptr ? kNullInvalidHandle : kNullSuccess};
  });
}

/// A graph launch is one operation of the stream; it runs the recorded operations in order and stops at the first
/// fault.
Status NullApi::graph_launch(void* exec, void* stream) {
  return on_stream("graph_launch", stream, [&](const auto& on) {
    const auto graph = find(s_.graph_execs, exec);
    if (graph == nullptr) return int{kNullInvalidHandle};
    return s_.enqueue(on, [this, graph] {
      for (const NullOp& op : graph->ops) {
        if (const int code = s_.run(op); code != kNullSuccess) return code;
      }
      return int{kNullSuccess};
    });
  });
}

}  // namespace forge::driver

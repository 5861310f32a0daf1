// forge-run with the command lines that the reference judge uses, on the GPU program of a model:
//   host-gpu-run MODEL.gguf --tokens 1,2,3 --dump-logits FILE [--decode] [--device gfx1100]
//   host-gpu-run MODEL.gguf --tokens 1,2,3 --dump-embedding FILE [--device gfx1100]
// The model is compiled for the device with the host compiler, and the GPU executor runs it on the null driver, lane by
// lane.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "codegen/gpu/targets.h"
#include "loader/gguf/gguf.h"
#include "runtime/gpu/executor.h"
#include "session/embedding.h"
#include "session/model_file.h"
#include "session/open_model.h"
#include "session/sequences.h"
#include "support/os/atomic_file.h"
#include "tests/gpu_host/host_compiler.h"
#include "tools/cli/entry.h"
#include "tools/run/dump_logits.h"

namespace forge::gpu_host {
namespace {

struct Request {
  std::string model, device = "gfx1100";
  std::vector<std::int32_t> ids;
  tools::DumpOptions dump;
  std::string embedding;  ///< file for the embedding, if it is wanted instead of logits
};

Request parse(int argc, char** argv) {
  Request request;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto value = [&] {
      if (++i == words.size()) throw Error(ErrorCode::kUsage, words[i - 1] + " needs a value");
      return words[i];
    };
    if (words[i] == "--tokens") {
      const std::string list = value() + ",";
      for (std::size_t at = 0; at < list.size(); at = list.find(',', at) + 1)
        request.ids.push_back(std::stoi(list.substr(at)));
    } else if (words[i] == "--dump-logits") {
      request.dump.file = value();
    } else if (words[i] == "--dump-embedding") {
      request.embedding = value();
    } else if (words[i] == "--device") {
      request.device = value();
    } else if (words[i] == "--decode") {
      request.dump.decode = true;
    } else {
      request.model = words[i];
    }
  }
  return request;
}

int run(int argc, char** argv) {
  const Request request = parse(argc, argv);
  const codegen::GpuTarget* target = codegen::find_target(request.device);
  if (target == nullptr) throw Error(ErrorCode::kUsage, "unknown device " + request.device, codegen::target_names());
  session::OpenedModel model;
  model.file = std::make_unique<loader::Gguf>(loader::Gguf::open(request.model));
  const loader::Gguf& file = *model.file;
  constexpr std::int64_t kContextMax = 256;
  const auto context = std::min(kContextMax, session::trained_context(file, kContextMax));
  HostKernelCompiler compiler;
  codegen::CompileOptions options{.context = context, .batch_max = 1, .skip = {}, .kernels = &compiler};
  options.hidden = !request.embedding.empty();
  const std::vector<std::string> targets{request.device};
  plan::PlanT plan = session::compile_model(file, targets, options);
  model.program = std::move(plan.programs.at(0));

  const auto control =
      std::make_shared<driver::NullControl>(driver::NullOptions{.wave_size = target->wave, .arch = request.device});
  run_on_host(*control);
  const auto driver = driver::open_null(control);
  const session::FileWeightSource source(file);
  runtime::GpuExecutor executor(model.program, source, driver.device(0), {.threads = 1});
  session::Sequences sequences(executor, context, 1);
  if (request.embedding.empty()) {
    tools::dump_logits(sequences, request.ids, request.dump);
  } else {
    const auto row = session::embed(sequences, request.ids, session::read_pooling(model));
    AtomicFile out(request.embedding);
    out.write(std::as_bytes(std::span<const float>(row)));
    out.commit();
  }
  return 0;
}

}  // namespace
}  // namespace forge::gpu_host

int main(int argc, char** argv) {
  return forge::tools::run_tool([&] { return forge::gpu_host::run(argc, argv); });
}

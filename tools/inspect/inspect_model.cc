#include "tools/inspect/inspect_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "loader/arch/family.h"
#include "loader/gguf/gguf.h"
#include "runtime/program_bounds.h"
#include "session/executors.h"
#include "session/memory_limit.h"
#include "session/open_model.h"
#include "session/sampling_defaults.h"
#include "session/session.h"
#include "session/state_report.h"
#include "support/error.h"
#include "support/json_text.h"
#include "support/os/console.h"
#include "text/jinja/template.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::tools {
namespace {

constexpr std::size_t kValueCharsMax = 100;
constexpr std::size_t kControlShown = 8;

struct TypeTotal {
  std::int64_t count = 0, elements = 0;
  std::uint64_t bytes = 0;
};

/// What both forms of the report need. An empty error string means no error.
struct ModelFacts {
  std::map<std::string_view, TypeTotal> types;  // by name
  std::int64_t parameters = 0;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::string tokenizer_error, template_error, run_error;
  std::optional<std::string_view> chat_template;
  runtime::MemoryRequirements need;
  session::StateReport state;
  std::int64_t context = 0;
};

/// Runs `body` and returns the line of the error that it throws, or an empty string.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return error.line();
  }
}

/// The registry's entry of the file's family; nullptr if forge does not support it.
const loader::Family* family_of(const loader::Gguf& file) {
  const auto name = file.find<std::string_view>("general.architecture");
  for (const auto& family : loader::families())
    if (name && family.name == *name) return &family;
  return nullptr;
}

ModelFacts gather(const loader::Gguf& file, const InspectOptions& options) {
  ModelFacts facts;
  for (const auto& tensor : file.tensors()) {
    auto& total = facts.types[dtype_name(tensor.dtype)];
    ++total.count;
    total.elements += tensor.elems();
    total.bytes += tensor.bytes();
    facts.parameters += tensor.elems();
  }
  if (session::has_tokenizer(file))
    facts.tokenizer_error = error_of([&] { facts.tokenizer = text::Tokenizer::open(file); });
  else
    facts.tokenizer_error = "the file has no vocabulary";
  facts.template_error = error_of([&] {
    facts.chat_template = file.find<std::string_view>("tokenizer.chat_template");
    if (facts.chat_template) (void)text::jinja::ChatTemplate::parse(*facts.chat_template);
  });
  facts.run_error = error_of([&] {
    const auto opened = session::open_model({.path = options.path, .context = options.context});
    facts.context = opened.context;
    facts.need = session::memory_need_of(*opened.program, runtime::kv_blocks_for(*opened.program, opened.context, 1));
    facts.state = session::state_report(*opened.program, opened.context, 1);
  });
  return facts;
}

std::string token_json(const text::Tokenizer& tokenizer, std::int32_t id) {
  return id < 0 ? "none" : fmt::format("{} '{}'", id, printable(tokenizer.token_text(id), 40));
}

std::vector<std::int32_t> control_tokens(const text::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_control(id)) ids.push_back(id);
  return ids;
}

/// The first `shown` tokens, and how many more there are.
std::string token_list(const text::Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::size_t shown) {
  std::string out;
  for (const auto id : ids.first(std::min(shown, ids.size())))
    out += (out.empty() ? "" : ", ") + token_json(tokenizer, id);
  return ids.size() > shown ? out + fmt::format(" and {} more (--all)", ids.size() - shown) : out;
}

/// The sampling defaults that the file sets, named by the last part of their keys.
std::vector<std::pair<std::string_view, double>> sampling_values(const session::SamplingDefaults& sampling) {
  std::vector<std::pair<std::string_view, double>> values;
  const auto add = [&values](std::string_view name, const auto& value) {
    if (value) values.emplace_back(name, *value);
  };
  add("temp", sampling.temperature);
  add("top_k", sampling.top_k);
  add("top_p", sampling.top_p);
  add("min_p", sampling.min_p);
  add("penalty_repeat", sampling.repeat_penalty);
  add("penalty_last_n", sampling.penalty_window);
  return values;
}

std::string sampling_text(const session::SamplingDefaults& sampling) {
  std::string out;
  for (const auto& [name, value] : sampling_values(sampling))
    out += fmt::format("{}{} {:.6g}", out.empty() ? "  " : ", ", name, value);
  out = out.empty() ? "  none\n" : out + "\n";
  for (const auto& line : sampling.ignored) out += "  not used: " + line + "\n";
  return out;
}

std::vector<std::int64_t> tensors_by_file(const loader::Gguf& model) {
  std::vector<std::int64_t> counts(model.files().size());
  for (const auto& tensor : model.tensors()) ++counts[tensor.file];
  return counts;
}

/// The parts of a split model.
std::string files_text(const loader::Gguf& model) {
  const auto tensors = tensors_by_file(model);
  std::string out = "\nfiles\n";
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& file = model.files()[i];
    out += fmt::format("  {}: {}, {} tensors, identity {}\n", printable(file.name, 200), human_bytes(file.bytes.size()),
                       tensors[i], file.identity().hex());
  }
  return out;
}

void files_json(JsonWriter& json, const loader::Gguf& model) {
  const auto tensors = tensors_by_file(model);
  json.open("files", '[');
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& file = model.files()[i];
    json.open('{').field("name", file.name).field("bytes", file.bytes.size()).field("tensors", tensors[i]);
    json.field("identity", file.identity().hex()).close();
  }
  json.close();
}

std::string as_text(const loader::Gguf& file, const InspectOptions& options, const ModelFacts& facts) {
  std::string out =
      fmt::format("{}: GGUF version {}, {}, {} tensors, {:.1f} M parameters\nidentity {}\n",
                  printable(options.path, 200), file.files().front().version, human_bytes(file.bytes()),
                  file.tensors().size(), static_cast<double>(facts.parameters) / 1e6, file.identity().hex());
  if (const auto* family = family_of(file))
    out += fmt::format("family {}: {}{}{}\n", family->name, family->models, family->features.empty() ? "" : "; ",
                       family->features);
  if (file.is_split()) out += files_text(file);
  out += "\nmetadata\n";
  for (const auto& entry : file.metadata())
    out += fmt::format("  {:44} {}\n", printable(entry.key, kValueCharsMax),
                       printable(entry.value.describe(), kValueCharsMax));
  out += fmt::format("\ntensors\n  {:8} {:>6} {:>14} {:>12} {:>7}\n", "type", "count", "elements", "size", "share");
  for (const auto& [type, total] : facts.types)
    out +=
        fmt::format("  {:8} {:6} {:14} {:>12} {:6.1f}%\n", type, total.count, total.elements, human_bytes(total.bytes),
                    100.0 * static_cast<double>(total.elements) / static_cast<double>(facts.parameters));
  if (options.all)
    for (const auto& tensor : file.tensors()) out += "  " + tensor.describe() + "\n";
  if (facts.tokenizer) {
    const auto& tokenizer = *facts.tokenizer;
    out += fmt::format("\ntokenizer\n  {}; {} tokens; BOS {}{}; EOS {}{}; end-of-generation tokens: {}\n",
                       tokenizer.describe(), tokenizer.vocab_size(), token_json(tokenizer, tokenizer.bos()),
                       tokenizer.add_bos() ? " (added)" : "", token_json(tokenizer, tokenizer.eos()),
                       tokenizer.add_eos() ? " (added)" : "",
                       token_list(tokenizer, tokenizer.end_of_generation(), SIZE_MAX));
    const auto control = control_tokens(tokenizer);
    out += fmt::format("  {} control tokens: {}\n", control.size(),
                       token_list(tokenizer, control, options.all ? SIZE_MAX : kControlShown));
    for (const auto& warning : tokenizer.warnings()) out += "  warning: " + printable(warning, 300) + "\n";
  } else {
    out += "\ntokenizer\n  " + facts.tokenizer_error + "\n";
  }
  out += "\nchat template\n  ";
  if (!facts.template_error.empty())
    out += facts.template_error;
  else
    out += facts.chat_template ? fmt::format("{} bytes", facts.chat_template->size()) : "none";
  out += "\n\nsampling defaults\n" + sampling_text(session::read_sampling_defaults(file));
  out += "\nmemory\n  ";
  if (!facts.run_error.empty()) return out + "forge cannot run it: " + facts.run_error + "\n";
  return out +
         fmt::format("context {}: {}; {} in total, {} available\n", facts.context, describe_need(facts.need),
                     human_bytes(facts.need.total()), human_bytes(memory_available().bytes)) +
         state_report_text(facts.state);
}

std::string as_json(const loader::Gguf& file, const InspectOptions& options, const ModelFacts& facts) {
  JsonWriter json;
  json.open('{').field("file", options.path).field("bytes", file.bytes());
  json.field("gguf_version", file.files().front().version).field("identity", file.identity().hex());
  json.field("parameters", facts.parameters);
  files_json(json, file);
  if (const auto* family = family_of(file))
    json.open("family", '{')
        .field("name", family->name)
        .field("models", family->models)
        .field("features", family->features)
        .close();
  json.open("metadata", '{');
  for (const auto& entry : file.metadata()) {
    if (const auto number = entry.value.to_f64(); number && entry.value.type != loader::GgufType::kBool)
      json.field(entry.key, *number);
    else if (const auto text = entry.value.to_string())
      json.field(entry.key, *text);
    else
      json.field(entry.key, entry.value.describe());
  }
  json.close().open("types", '{');
  for (const auto& [type, total] : facts.types)
    json.open(type, '{')
        .field("tensors", total.count)
        .field("elements", total.elements)
        .field("bytes", total.bytes)
        .close();
  json.close();
  if (options.all) {
    json.open("tensors", '[');
    for (const auto& tensor : file.tensors())
      json.open('{')
          .field("name", tensor.name)
          .field("type", dtype_name(tensor.dtype))
          .field("dims", std::span<const std::int64_t>(tensor.dims.data(), tensor.rank))
          .field("file", tensor.file)
          .field("offset", tensor.offset)
          .field("bytes", tensor.bytes())
          .close();
    json.close();
  }
  json.open("tokenizer", '{');
  if (facts.tokenizer) {
    const auto& tokenizer = *facts.tokenizer;
    json.field("kind", tokenizer.describe()).field("control", std::span<const std::int32_t>(control_tokens(tokenizer)));
    json.field("tokens", tokenizer.vocab_size()).field("bos", tokenizer.bos()).field("eos", tokenizer.eos());
    json.field("add_bos", tokenizer.add_bos()).field("add_eos", tokenizer.add_eos());
    json.field("ends", std::span<const std::int32_t>(tokenizer.end_of_generation()));
    json.field("warnings", std::span<const std::string>(tokenizer.warnings()));
  } else {
    json.field("error", facts.tokenizer_error);
  }
  json.close().open("chat_template", '{');
  json.field("bytes", facts.chat_template ? facts.chat_template->size() : 0).field("error", facts.template_error);
  const auto sampling = session::read_sampling_defaults(file);
  json.close().open("sampling", '{');
  for (const auto& [name, value] : sampling_values(sampling)) json.field(name, value);
  json.field("ignored", std::span<const std::string>(sampling.ignored));
  json.close().field("runs", facts.run_error.empty()).field("error", facts.run_error);
  json.open("memory", '{').field("context", facts.context).field("weights", facts.need.weights);
  json.field("kv", facts.need.kv).field("arena", facts.need.arena).field("logits", facts.need.io);
  json.field("recurrent", facts.need.recurrent);
  json.field("total", facts.need.total()).field("available", memory_available().bytes);
  state_report_json(json, facts.state);
  json.close();
  return json.close().take();
}

}  // namespace

std::string inspect_model(const InspectOptions& options) {
  const auto file = loader::Gguf::open(options.path);
  const auto facts = gather(file, options);
  return options.json ? as_json(file, options, facts) : as_text(file, options, facts);
}

}  // namespace forge::tools

#include "session/open_model.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "codegen/back_end.h"
#include "codegen/compile.h"
#include "runtime/plan/cache.h"
#include "runtime/plan/plan_file.h"
#include "runtime/program_facts.h"
#include "session/model_file.h"
#include "session/tuned/tuned_choices.h"
#include "support/error.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"

namespace forge::session {
namespace {

constexpr std::int64_t kVocabMax = std::int64_t{1} << 28;

/// The plan of `key` from the cache, built with `build` on a miss. Shows progress and prints the cache's warnings.
/// keeps: look and store it there.
plan::CachedPlan cached(const std::string& key, bool keeps, const plan::PlanCache::Build& build) {
  const plan::PlanCache cache(keeps ? plan::CacheOptions::from_environment() : plan::CacheOptions());
  auto result = cache.get_or_build(
      key,
      [&] {
        check_interrupt();
        progress("compiling the plan");
        return build();
      },
      [] { progress("waiting for another process that compiles this plan"); });
  end_progress();
  for (const auto& warning : result.warnings) warn(warning);
  return result;
}

std::string target_of(const ModelChoice& choice) {
  return choice.target.empty() ? codegen::host_target() : choice.target;
}

/// The KV cache's type from --kv-type, else `fallback`.
DType kv_type_of(const ModelChoice& choice, DType fallback) {
  return choice.kv_type ? dtype_of_name(*choice.kv_type).value_or(fallback) : fallback;
}

/// CompileOptions::tune of a compilation for the choice. deterministic: choices for steps of some size do not apply,
/// because all steps sum as that of one token does.
std::string tune_of(const ModelChoice& choice, const loader::Gguf& file, bool deterministic) {
  const auto card = choice.no_tuned || deterministic ? std::string() : choice.card;
  return tune_with_stored({.card = card, .target = target_of(choice), .model = file.identity().hex()},
                          choice.tune.value_or(""));
}

/// Takes the program out of a plan that was compiled for `target` alone.
std::shared_ptr<const plan::ProgramT> take_program(plan::PlanT& plan, std::string_view target) {
  const int index = choose_program(plan, target);
  if (index < 0)
    throw Error(ErrorCode::kPlan, "the plan has no program for this machine", {}, "compile the model again");
  return std::move(plan.programs[static_cast<std::size_t>(index)]);
}

OpenedModel open_gguf(const ModelChoice& choice) {
  OpenedModel opened;
  opened.file = std::make_unique<loader::Gguf>(loader::Gguf::open(choice.path));
  opened.path = opened.file->path();
  const auto trained = trained_context(*opened.file, kContextDefault);
  opened.context = choice.context.value_or(std::min(trained, kContextDefault));
  if (opened.context > trained)
    note(fmt::format("note: the context of {} tokens exceeds the {} tokens the model was trained for", opened.context,
                     trained));
  const codegen::CompileOptions options{.context = opened.context,
                                        .batch_max = choice.sequences,
                                        .skip = choice.skip,
                                        .kv_type = kv_type_of(choice, DType::kF16),
                                        .hidden = choice.hidden && codegen::gives_hidden(target_of(choice)),
                                        .tune = tune_of(choice, *opened.file, choice.deterministic),
                                        .attention = choice.attention.value_or(""),
                                        .deterministic = choice.deterministic};
  const std::vector<std::string> targets{target_of(choice)};
  const codegen::ModelFile identity{.identity = opened.file->identity().hex()};
  auto result = cached(codegen::cache_key(identity, targets, options), choice.keeps_plan,
                       [&] { return compile_model(*opened.file, targets, options); });
  opened.program = take_program(result.plan, targets.front());
  opened.origin = result.built ? "compiled" : "cache";
  return opened;
}

/// Checks the numbers of an untrusted plan that session code computes with, so that sizes cannot overflow. The executor
/// checks the rest.
void check_program(const plan::ProgramT& program) {
  const auto in = [](std::int64_t value, std::int64_t high) { return value >= 1 && value <= high; };
  if (!in(program.context, kContextMax) || !in(program.batch_max, kSequencesMax) || !in(program.vocab, kVocabMax))
    throw Error(ErrorCode::kPlan, "the plan's context, batch or vocabulary size is out of range", {},
                "compile the model again (forge-compile)");
  (void)runtime::facts_of(program);  // checks them
}

/// Cache identity of a recompiled plan: the model's identity and a hash of the plan's graph. The graph of a foreign
/// plan may differ from the one forge builds from the model, so its program must not be cached under the model alone.
std::string identity_with_graph(const loader::Gguf& file, const plan::PlanT& plan) {
  const auto hash = XXH3_128bits(plan.graph.data(), plan.graph.size());
  return fmt::format("{} {:016x}{:016x}", file.identity().hex(), hash.high64, hash.low64);
}

/// The KV cache's type that the plan was compiled with, for a recompilation to keep: that of the first program whose
/// target supports several types, if `target` supports it as well; else f16.
DType kv_type_of(const plan::PlanT& plan, std::string_view target) {
  for (const auto& program : plan.programs) {
    if (!program || program->facts->kv_types.size() < 2) continue;
    const auto type = codegen::options_of(*program).kv_type;
    if (codegen::supports_kv_type(target, type)) return type;
  }
  return DType::kF16;
}

/// True if a program of the plan is deterministic, or if one is not.
bool has_program(const plan::PlanT& plan, bool deterministic) {
  return std::ranges::any_of(plan.programs, [&](const auto& program) {
    return program != nullptr && codegen::options_of(*program).deterministic == deterministic;
  });
}

/// Why program `index` of the plan cannot be used for `choice`, for the note; empty if it can.
std::string why_retarget(const plan::PlanT& plan, int index, const ModelChoice& choice) {
  if (index < 0) return "it has no program for " + target_of(choice);
  const auto& program = *plan.programs[static_cast<std::size_t>(index)];
  if (choice.context.value_or(0) > program.context)
    return fmt::format("its context is {} tokens, not {}", program.context, *choice.context);
  if (choice.sequences > program.batch_max)
    return fmt::format("it is for {} sequences in a step, not {}", program.batch_max, choice.sequences);
  if (!choice.skip.empty()) return "--skip-pass is given";
  if (choice.attention &&
      codegen::options_of(program).attention != codegen::attention_text(codegen::parse_attention(*choice.attention)))
    return "it was compiled with another --attention";
  if (choice.tune && codegen::options_of(program).tune != *choice.tune) return "it was compiled with another --tune";
  if (choice.kv_type)
    if (const auto has = codegen::options_of(program).kv_type; has != kv_type_of(choice, has))
      return fmt::format("its KV cache is {}, not {}", dtype_name(has), *choice.kv_type);
  return {};
}

OpenedModel open_plan(const ModelChoice& choice) {
  OpenedModel opened;
  auto plan = plan::read_plan(choice.path);
  opened.file = open_model_of(plan, choice.path, choice.model);
  opened.path = opened.file->path();
  const int index = choose_program(plan, target_of(choice));
  for (const auto& program : plan.programs)
    if (program) check_program(*program);
  if (choice.deterministic && has_program(plan, false))
    throw Error(ErrorCode::kUsage, fmt::format("plan {} is not deterministic", printable(choice.path, 200)),
                "it was compiled without --deterministic",
                "compile it with forge-compile --deterministic, or give the GGUF file");
  const auto why = why_retarget(plan, index, choice);
  if (why.empty()) {
    opened.program = std::move(plan.programs[static_cast<std::size_t>(index)]);
    opened.context = choice.context.value_or(opened.program->context);
    opened.origin = "plan " + choice.path;
    return opened;
  }
  std::int64_t context = 0;
  for (const auto& program : plan.programs)
    if (program) context = std::max(context, program->context);
  if (context == 0) context = std::min(trained_context(*opened.file, kContextDefault), kContextDefault);
  opened.context = choice.context.value_or(context);
  note(fmt::format("note: {} is compiled again for this run: {}", choice.path, why));
  const auto target = target_of(choice);
  const bool deterministic = choice.deterministic || has_program(plan, true);
  const codegen::CompileOptions options{.context = opened.context,
                                        .batch_max = choice.sequences,
                                        .skip = choice.skip,
                                        .kv_type = kv_type_of(choice, kv_type_of(plan, target)),
                                        .hidden = choice.hidden && codegen::gives_hidden(target),
                                        .tune = tune_of(choice, *opened.file, deterministic),
                                        .attention = choice.attention.value_or(""),
                                        .deterministic = deterministic};
  const codegen::ModelFile identity{.identity = identity_with_graph(*opened.file, plan)};
  auto result = cached(codegen::cache_key(identity, std::span(&target, 1), options), choice.keeps_plan,
                       [&] { return retarget_plan(plan, *opened.file, target, options); });
  opened.program = take_program(result.plan, target);
  opened.origin = fmt::format("plan {}, compiled again", choice.path);
  return opened;
}

}  // namespace

int choose_program(const plan::PlanT& plan, std::string_view target) {
  if (target.empty()) return codegen::host_back_end() == nullptr ? -1 : choose_program(plan, codegen::host_target());
  const auto* back_end = codegen::back_end_of(target);
  int best = -1, best_rank = 0;
  for (std::size_t i = 0; back_end != nullptr && i < plan.programs.size(); ++i) {
    if (plan.programs[i] == nullptr) continue;
    const auto rank = back_end->rank(plan.programs[i]->target, target);
    if (!rank || (best >= 0 && *rank <= best_rank)) continue;
    best = static_cast<int>(i);
    best_rank = *rank;
  }
  return best;
}

namespace {

/// The path of the first file that is not the plan's; the model's path if the plan has other files altogether.
std::string changed_file(const plan::PlanT& plan, const loader::Gguf& model) {
  const auto& own = plan.model->files;
  if (own.size() != model.files().size()) return model.path().native();
  for (std::size_t i = 0; i < own.size(); ++i)
    if (own[i] != nullptr && own[i]->identity != model.files()[i].identity().hex())
      return model.files()[i].path.native();
  return model.path().native();
}

}  // namespace

std::unique_ptr<loader::Gguf> open_model_of(const plan::PlanT& plan, const std::string& plan_path,
                                            const std::string& model) {
  const auto doing = "opening the model of plan " + printable(plan_path, 200);
  const std::filesystem::path found = model.empty() ? plan.model->path : model;
  std::error_code failed;
  if (model.empty() && !std::filesystem::exists(found, failed))
    throw Error(ErrorCode::kPlan, doing,
                found.empty() ? "the plan has no path of its model"
                              : fmt::format("there is no file {}", printable(found.native(), 200)),
                "give its path with --model FILE");
  try {
    auto file = std::make_unique<loader::Gguf>(loader::Gguf::open(found));
    if (file->identity().hex() != plan.model->identity || file->files().size() != plan.model->files.size())
      throw Error(ErrorCode::kPlan, fmt::format("{} is another model", printable(changed_file(plan, *file), 200)),
                  "its metadata and tensors are not those the plan was made for",
                  "give the right one with --model FILE, or compile this one (forge-compile)");
    return file;
  } catch (const Error& error) {
    throw error.within(doing);
  }
}

OpenedModel open_model(const ModelChoice& choice) {
  if (plan::looks_like_plan(choice.path)) return open_plan(choice);
  if (!choice.model.empty())
    throw Error(ErrorCode::kUsage, "--model needs a plan", fmt::format("{} is not a plan", printable(choice.path, 200)),
                "leave --model out");
  return open_gguf(choice);
}

}  // namespace forge::session

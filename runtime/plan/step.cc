#include "runtime/plan/step.h"

namespace forge::plan {
namespace {

// For launches and repacks; the plan may be invalid here, hence "?".
std::string_view code_name(const ProgramT& program, std::uint32_t code) {
  if (code >= program.code_objects.size() || program.code_objects[code] == nullptr) return "?";
  return program.code_objects[code]->name;
}

}  // namespace

std::string_view kernel_name(const ProgramT& program, const StepT& step) {
  switch (step.body.type) {
    case Body::Tile:
      return step.body.AsTile()->source.type == Source::ExpertMatmulRows ? "experts" : "tile";
    case Body::Attention:
      return "attention";
    case Body::NormRows:
      return "rms_norm";
    case Body::Route:
      return "route";
    case Body::RopeFrequencies:
      return "rope_freqs";
    case Body::RopeAngles:
      return "rope_table";
    case Body::SplitPairs:
      return "split_interleaved";
    case Body::Arrange:
      return "arrange";
    case Body::SelfAttention:
      return "self_attention";
    case Body::SelectKeys:
      return "select_keys";
    case Body::ShortConv:
      return "short_conv";
    case Body::DeltaRule:
      return "delta_rule";
    case Body::SelectiveScan:
      return "selective_scan";
    case Body::Rwkv7:
      return "rwkv7";
    case Body::MatchRms:
      return "match_rms";
    case Body::GaussianTopk:
      return "gaussian_topk";
    case Body::LoadWeight:
      return "load";
    case Body::CopySource:
      return "copy";
    case Body::Repack:
      return code_name(program, step.body.AsRepack()->code);
    case Body::Launch:
      return code_name(program, step.body.AsLaunch()->code);
    case Body::NONE:
      break;
  }
  return "?";
}

}  // namespace forge::plan

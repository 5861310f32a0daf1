#include "codegen/gpu/code/wave_rules.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

namespace forge::codegen {
namespace {

void forget_results(Wave& wave, const Operation& operation) {
  wave.forget(operation, 0);
  // A carry, or the scale that a division needs, is a second result.
  for (const std::string_view two : {"_co_", "div_scale", "mad_u64", "mad_i64", "mad_co"})
    if (operation.name.find(two) != std::string::npos) wave.forget(operation, 1);
}
void forget_scalars(Wave& wave, const Operation& operation) {
  wave.forget(operation, 0);
  wave.scc = Maybe::kUnknown;
  if (operation.name.find("exec") != std::string::npos) wave.set_mask(kExecLow, {});
}
void forget_condition(Wave& wave, const Operation&) {
  wave.scc = Maybe::kUnknown;
}
/// A comparison: a mask, the lanes that are on, or both (v_cmpx of gfx9).
void forget_mask(Wave& wave, const Operation& operation) {
  const Known off{0, ~wave.exec().maybe()};  // lanes that are off stay so
  if (operation.operands.size() > 2) wave.write_uniform(operation, 0, off, wave.lanes);
  if (operation.name.starts_with("v_cmpx")) wave.set_mask(kExecLow, off);
}
void forget_lds(Wave& wave, const Operation& operation) {
  wave.forget(operation, 0);
  wave.lds->forget();
}
void do_nothing(Wave&, const Operation&) {}

constexpr Rule kOther{"", forget_results}, kOtherScalar{"", forget_scalars}, kCondition{"", forget_condition},
    kMask{"", forget_mask}, kLdsWrite{"", forget_lds}, kNothing{"", do_nothing};

struct Alias {
  std::string_view from, to;
};
/// Names of gfx9 and gfx10 (left) that gfx11 has changed, and names of other encodings of an operation. The first that
/// starts the name holds.
constexpr std::array kAliases{Alias{"v_add_u32", "v_add_nc_u32"},
                              Alias{"v_sub_u32", "v_sub_nc_u32"},
                              Alias{"v_subrev_u32", "v_subrev_nc_u32"},
                              Alias{"v_add_u16", "v_add_nc_u16"},
                              Alias{"v_sub_u16", "v_sub_nc_u16"},
                              Alias{"v_addc_co_u32", "v_add_co_ci_u32"},
                              Alias{"v_subb_co_u32", "v_sub_co_ci_u32"},
                              Alias{"s_andn2_", "s_and_not1_"},
                              Alias{"s_orn2_", "s_or_not1_"},
                              Alias{"ds_read2st64_", "ds_load_2addr_stride64_"},
                              Alias{"ds_write2st64_", "ds_store_2addr_stride64_"},
                              Alias{"ds_read2_", "ds_load_2addr_"},
                              Alias{"ds_write2_", "ds_store_2addr_"},
                              Alias{"ds_read_", "ds_load_"},
                              Alias{"ds_write_", "ds_store_"},
                              Alias{"global_atomic_add", "global_atomic_add_u32"},
                              Alias{"s_add_co_u32", "s_add_u32"},
                              Alias{"s_add_co_i32", "s_add_i32"},
                              Alias{"s_add_co_ci_u32", "s_addc_u32"},
                              Alias{"s_sub_co_u32", "s_sub_u32"},
                              Alias{"s_sub_co_i32", "s_sub_i32"},
                              Alias{"s_sub_co_ci_u32", "s_subb_u32"},
                              Alias{"s_addk_co_i32", "s_addk_i32"},
                              Alias{"s_cmpk_", "s_cmp_"},
                              Alias{"v_cmpx_", "v_cmp_"}};
constexpr std::array kWidths{Alias{"_dwordx16", "_b512"}, Alias{"_dwordx8", "_b256"}, Alias{"_dwordx4", "_b128"},
                             Alias{"_dwordx3", "_b96"},   Alias{"_dwordx2", "_b64"},  Alias{"_dword", "_b32"}};

std::string gfx11_name(std::string name) {
  for (const Alias& alias : kAliases)
    if (name.starts_with(alias.from) && !(alias.to.starts_with(alias.from) && name.starts_with(alias.to))) {
      name = std::string(alias.to) + name.substr(alias.from.size());
      break;
    }
  for (const Alias& width : kWidths)
    if (name.ends_with(width.from)) return name.substr(0, name.size() - width.from.size()) + std::string(width.to);
  return name;
}

const std::map<std::string_view, const Rule*>& all_rules() {
  static const auto rules = [] {
    std::map<std::string_view, const Rule*> out;
    for (const auto& table : {scalar_rules(), vector_rules(), memory_rules()})
      for (const Rule& rule : table) out.emplace(rule.name, &rule);
    return out;
  }();
  return rules;
}

/// For operations without a rule of their own.
const Rule* rule_of_class(const Operation& operation) {
  const std::string_view name = operation.name;
  if (name.starts_with("v_cmp")) return &kMask;
  if (name.starts_with("s_cmp") || name.starts_with("s_bitcmp")) return &kCondition;
  switch (class_of(name)) {
    case InstructionClass::kScalar:
      return &kOtherScalar;
    case InstructionClass::kWait:
    case InstructionClass::kBranch:
    case InstructionClass::kStore:
      return &kNothing;
    case InstructionClass::kLds: {
      const bool reads = name.find("load") != name.npos || name.find("read") != name.npos ||
                         name.find("permute") != name.npos || name.find("swizzle") != name.npos;
      return reads ? &kOther : &kLdsWrite;
    }
    case InstructionClass::kLoad:
      return name.find("lds") != name.npos || operation.modifiers.find("lds") != std::string::npos ? &kLdsWrite
                                                                                                   : &kOther;
    case InstructionClass::kVector:
    case InstructionClass::kMatrix:
      return &kOther;
  }
  return &kOther;
}

/// Operations whose rule moves the lanes of the first source: what sums and maxima over a wave consist of.
bool takes_moved(const Operation& operation) {
  if (operation.move == LaneMove::kUnknown) return false;
  constexpr std::array<std::string_view, 11> kNames{"v_mov_b32", "v_add_nc_u32", "v_add_u32",     "v_max_i32",
                                                    "v_max_u32", "v_min_i32",    "v_min_u32",     "v_or_b32",
                                                    "v_and_b32", "v_xor_b32",    "ds_swizzle_b32"};
  return std::ranges::find(kNames, operation.name) != kNames.end();
}

}  // namespace

const Rule* find_rule(const Operation& operation) {
  if (operation.move != LaneMove::kNone && !takes_moved(operation)) return rule_of_class(operation);
  const auto& rules = all_rules();
  const auto found = rules.find(gfx11_name(operation.name));
  return found != rules.end() ? found->second : rule_of_class(operation);
}

}  // namespace forge::codegen

// Parses llvm-objdump listings and hand-written listings of AMD code (listing.h).
#include "codegen/gpu/code/listing.h"

#include <charconv>
#include <map>

namespace forge::codegen {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") + 1 - first);
}

std::optional<std::uint64_t> number_of(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (failed != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

/// A label or symbol line: "0000000000001600 <k>:" or "loop:".
struct Label {
  std::string_view name;
  std::optional<std::uint64_t> address;
};
std::optional<Label> label_of(std::string_view line) {
  if (!line.ends_with(':')) return std::nullopt;
  line.remove_suffix(1);
  const auto open = line.find(" <");
  if (open == std::string_view::npos)
    return line.find_first_of(" \t,/") == std::string_view::npos ? std::optional(Label{line, {}}) : std::nullopt;
  const auto address = number_of(line.substr(0, open), 16);
  if (!address || !line.ends_with('>')) return std::nullopt;
  return Label{line.substr(open + 2, line.size() - open - 3), address};
}

std::vector<std::string> split_operands(std::string_view text) {
  std::vector<std::string> operands;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c != ',' || (depth > 0 && i < text.size())) continue;
    if (const auto one = trimmed(text.substr(begin, i - begin)); !one.empty()) operands.emplace_back(one);
    begin = i + 1;
  }
  return operands;
}

/// One instruction line, with its address if the line has one.
struct Line {
  Instruction instruction;
  std::optional<std::uint64_t> address;
};
std::optional<Line> instruction_of(std::string_view line) {
  Line out;
  if (const auto comment = line.find("//"); comment != std::string_view::npos) {
    const auto encoding = trimmed(line.substr(comment + 2));
    out.address = number_of(encoding.substr(0, encoding.find(':')), 16);
    line = line.substr(0, comment);
  }
  line = trimmed(line);
  const auto space = line.find_first_of(" \t");
  const auto mnemonic = line.substr(0, space);
  // Other lines of a listing are skipped: "Disassembly of section .text:", "...", directives.
  if (mnemonic.find('_') == std::string_view::npos || mnemonic.find_first_of(".<>/") != std::string_view::npos)
    return std::nullopt;
  out.instruction.text = line;
  out.instruction.mnemonic = mnemonic;
  if (space != std::string_view::npos) out.instruction.operands = split_operands(line.substr(space));
  return out;
}

/// Branch operands are signed 16-bit word counts, relative to the next instruction.
void resolve(Function& function, const std::map<std::string, std::uint64_t, std::less<>>& labels) {
  for (Instruction& one : function.instructions) {
    if (!one.mnemonic.starts_with("s_branch") && !one.mnemonic.starts_with("s_cbranch")) continue;
    if (const auto words = number_of(one.operand(0), 10)) {
      const auto signed_words = static_cast<std::int64_t>(static_cast<std::int16_t>(*words));
      one.target = one.address + 4 + static_cast<std::uint64_t>(4 * signed_words);
    } else if (const auto label = labels.find(one.operand(0)); label != labels.end()) {
      one.target = label->second;
    }
  }
}

/// Parses "4", or "4:7" in brackets: the first and last register.
std::optional<std::pair<int, int>> range_of(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  const auto colon = text.find(':');
  const auto first = number_of(text.substr(0, colon), 10);
  const auto last = colon == std::string_view::npos ? first : number_of(text.substr(colon + 1), 10);
  if (!first || !last || *last < *first || *last > 2048) return std::nullopt;
  return std::pair(static_cast<int>(*first), static_cast<int>(*last));
}

/// The register without its decoration: "v0" for "-
/// v0
/// row_shr:1".
std::string_view bare(std::string_view operand) {
  while (!operand.empty() && (operand.front() == '-' || operand.front() == '|')) operand.remove_prefix(1);
  return operand.substr(0, operand.find_first_of(" |\t"));
}

}  // namespace

std::vector<Function> parse_listing(std::string_view text) {
  std::vector<Function> functions;
  std::map<std::string, std::uint64_t, std::less<>> labels;
  std::uint64_t next = 0;
  const auto close = [&] {
    if (!functions.empty()) resolve(functions.back(), labels);
    labels.clear();
  };
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto line = trimmed(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (const auto label = label_of(line)) {
      if (label->address) {
        close();
        functions.push_back({std::string(label->name), {}});
        next = *label->address;
      }
      labels.emplace(label->name, next);
    } else if (auto one = instruction_of(line)) {
      if (functions.empty()) functions.emplace_back();
      one->instruction.address = one->address.value_or(next);
      next = one->instruction.address + 4;
      functions.back().instructions.push_back(std::move(one->instruction));
    }
  }
  close();
  return functions;
}

std::vector<Register> scalar_registers(std::string_view operand) {
  const auto name = bare(operand);
  const auto pair = [](Register low) { return std::vector<Register>{low, static_cast<Register>(low + 1)}; };
  if (name == "exec") return pair(kExecLow);
  if (name == "vcc") return pair(kVccLow);
  if (name == "exec_lo") return {kExecLow};
  if (name == "exec_hi") return {kExecHigh};
  if (name == "vcc_lo") return {kVccLow};
  if (name == "vcc_hi") return {kVccLow + 1};
  if (name == "m0") return {kM0};
  const bool trap = name.starts_with("ttmp");
  if (!trap && !name.starts_with('s')) return {};
  const auto range = range_of(name.substr(trap ? 4 : 1));
  if (!range || range->second > 105) return {};
  std::vector<Register> all;
  for (int i = range->first; i <= range->second; ++i) all.push_back(static_cast<Register>(i + (trap ? kTrapFirst : 0)));
  return all;
}

std::optional<std::pair<int, int>> vector_registers(std::string_view operand) {
  auto name = bare(operand);
  if (!name.starts_with('v') || name.size() < 2) return std::nullopt;
  name.remove_prefix(1);
  return range_of(name.substr(0, name.find('.')));
}

int wave_of(const std::vector<Function>& functions) {
  for (const Function& function : functions)
    for (const Instruction& one : function.instructions)
      for (const std::string& operand : one.operands)
        if (const auto name = bare(operand); name == "exec" || name == "vcc") return 64;
  return 32;
}

}  // namespace forge::codegen

#include "codegen/gpu/compile/code_object.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "codegen/gpu/compile/elf_image.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

using Bytes = std::span<const std::byte>;
using Json = nlohmann::json;

constexpr std::uint16_t kMachineAmdGpu = 224, kMachineCuda = 190;
/// Source: LLVM's AMDGPUUsage, "Code Object V3 and Above Note Records".
constexpr std::uint32_t kNoteAmdGpuMetadata = 32;
/// Of metadata, far above what compilers write: a kernel's argument is at depth 5, and a kernel takes a few kilobytes.
constexpr int kDepthMax = 32;
constexpr std::size_t kMetadataBytesMax = std::size_t{1} << 20;
/// Attributes of .nv.info; undocumented, found by comparing cubins with what ptxas -v says of them.
constexpr std::uint8_t kAttributeMaxThreads = 0x05, kAttributeFrame = 0x11, kAttributeStack = 0x12,
                       kAttributeRegisters = 0x2f;
constexpr std::uint8_t kFormatSized = 0x04;
/// Shared memory that the system takes of each block, counted in the kernel's section where a target has it there.
constexpr std::uint64_t kCudaReservedBytes = 1024;

[[noreturn]] void refuse(std::string_view entry, std::string why) {
  throw Error(ErrorCode::kDevice, fmt::format("the code object of {} cannot be used", printable(entry)), std::move(why),
              "compile it again");
}

int as_int(std::int64_t value) {
  return static_cast<int>(std::clamp<std::int64_t>(value, -1, std::numeric_limits<int>::max()));
}

/// The description of the first AMD metadata note, padded records of 4-byte words.
std::optional<Bytes> metadata_note(const ElfImage& elf) {
  for (const ElfSection& section : elf.sections) {
    if (section.type != SHT_NOTE) continue;
    for (std::uint64_t at = 0; at < section.bytes.size();) {
      const auto head = read_at<Elf64_Nhdr>(section.bytes, at);
      if (!head) break;
      const auto padded = [](std::uint64_t bytes) { return (bytes + 3) / 4 * 4; };
      const std::uint64_t name = at + sizeof(Elf64_Nhdr), description = name + padded(head->n_namesz);
      const std::uint64_t end = description + head->n_descsz;
      if (end > section.bytes.size()) break;
      const std::string_view owner(reinterpret_cast<const char*>(section.bytes.data()) + name, head->n_namesz);
      if (head->n_type == kNoteAmdGpuMetadata && owner == std::string_view("AMDGPU\0", 7))
        return section.bytes.subspan(description, head->n_descsz);
      at = description + padded(head->n_descsz);
    }
  }
  return std::nullopt;
}

/// Null for damaged bytes. nlohmann's reader of MessagePack recurses, so depth is bounded here.
Json parse_metadata(Bytes note, std::string_view entry) {
  const auto bound = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > kDepthMax) refuse(entry, "its metadata is damaged: it is nested too deeply");
    return true;
  };
  Json root;
  nlohmann::detail::json_sax_dom_callback_parser<Json> builder(root, bound, /*allow_exceptions=*/false);
  const auto* begin = reinterpret_cast<const char*>(note.data());
  const bool whole = note.size() <= kMetadataBytesMax &&
                     Json::sax_parse(begin, begin + note.size(), &builder, Json::input_format_t::msgpack);
  return whole ? root : Json();
}

/// Errors: Json::exception where a number is none.
CodeObjectFacts facts_of_amd_kernel(const Json& kernel) {
  CodeObjectFacts facts;
  for (const auto& [key, value] :
       {std::pair{".vgpr_count", &facts.kernel.registers}, std::pair{".sgpr_count", &facts.kernel.scalar_registers},
        std::pair{".private_segment_fixed_size", &facts.kernel.spill_bytes},
        std::pair{".group_segment_fixed_size", &facts.kernel.lds_bytes},
        std::pair{".wavefront_size", &facts.kernel.wave}, std::pair{".max_flat_workgroup_size", &facts.threads},
        std::pair{".vgpr_spill_count", &facts.register_spills}, std::pair{".sgpr_spill_count", &facts.scalar_spills}})
    if (const auto it = kernel.find(key); it != kernel.end())
      *value = as_int(it->get_ref<const Json::number_integer_t&>());
  return facts;
}

/// Is `text` ("amdgcn-amd-amdhsa--gfx942:sramecc+", before V4 "amdgcn-amd-amdhsa-gfx942") of the target?
bool names_target(std::string_view text, std::string_view target) {
  text = text.substr(0, text.find(':'));
  return text.ends_with(target) && text.size() > target.size() && text[text.size() - target.size() - 1] == '-';
}

/// "clang version 19.1.7" of .comment: texts, each ended by a zero byte.
std::string compiler_text(const ElfImage& elf) {
  const ElfSection* comment = elf.find(".comment");
  if (comment == nullptr) return {};
  const std::string_view text(reinterpret_cast<const char*>(comment->bytes.data()), comment->bytes.size());
  const auto start = text.find("clang version ");
  if (start == std::string_view::npos) return {};
  const auto end = text.find_first_of(std::string_view(" \0", 2), start + 14);
  return printable(text.substr(start, end == std::string_view::npos ? end : end - start));
}

CodeObjectFacts read_amd(const ElfImage& elf, const GpuTarget& target, std::string_view entry) {
  const auto note = metadata_note(elf);
  if (!note) refuse(entry, "it has no metadata note");
  try {
    const Json metadata = parse_metadata(*note, entry);
    const auto made_for = metadata.value("amdhsa.target", fmt::format("-{}", target.name));
    if (!names_target(made_for, target.name))
      refuse(entry, fmt::format("it is for {}, not for {}", printable(made_for), target.name));
    for (const Json& kernel : metadata.value("amdhsa.kernels", Json::array())) {
      if (kernel.at(".name").get_ref<const std::string&>() != entry) continue;
      CodeObjectFacts facts = facts_of_amd_kernel(kernel);
      facts.compiler_text = compiler_text(elf);
      return facts;
    }
  } catch (const Json::exception&) {  // something is missing or of another type
    refuse(entry, "its metadata is damaged");
  }
  refuse(entry, "it has no such kernel");
}

/// Calls `use(attribute, bytes)` for the sized records of an .nv.info section; stops where the bytes are damaged.
template <typename Use>
void for_each_attribute(Bytes info, const Use& use) {
  for (std::uint64_t at = 0; at + 4 <= info.size();) {
    const auto format = std::to_integer<std::uint8_t>(info[at]),
               attribute = std::to_integer<std::uint8_t>(info[at + 1]);
    const std::uint64_t bytes = read_at<std::uint16_t>(info, at + 2).value_or(0);
    at += 4;
    if (format != kFormatSized) continue;  // its value is in the head
    if (info.size() - at < bytes) return;
    use(attribute, info.subspan(at, bytes));
    at += bytes;
  }
}

CodeObjectFacts read_cubin(const ElfImage& elf, const GpuTarget& target, std::string_view entry) {
  const ElfSection* text = elf.find(fmt::format(".text.{}", entry));
  if (text == nullptr) refuse(entry, "it has no such kernel");
  CodeObjectFacts facts;
  facts.kernel.wave = target.wave;
  // Up to sm_8x the registers are in the section's own row; later targets have them in .nv.info.
  const std::uint32_t symbol = text->info & 0xffffff;
  if (const std::uint32_t registers = text->info >> 24; registers > 0) facts.kernel.registers = as_int(registers);
  if (const ElfSection* info = elf.find(".nv.info"); info != nullptr) {
    for_each_attribute(info->bytes, [&](std::uint8_t attribute, Bytes value) {
      const auto of = read_at<std::uint32_t>(value, 0), number = read_at<std::uint32_t>(value, 4);
      if (!of || !number || *of != symbol) return;
      if (attribute == kAttributeRegisters) facts.kernel.registers = as_int(*number);
      if (attribute == kAttributeFrame || attribute == kAttributeStack)
        facts.kernel.spill_bytes = std::max(facts.kernel.spill_bytes, as_int(*number));
    });
  }
  if (const ElfSection* info = elf.find(fmt::format(".nv.info.{}", entry)); info != nullptr) {
    for_each_attribute(info->bytes, [&](std::uint8_t attribute, Bytes value) {
      if (attribute == kAttributeMaxThreads) facts.threads = as_int(read_at<std::uint32_t>(value, 0).value_or(0));
    });
  }
  const ElfSection* shared = elf.find(fmt::format(".nv.shared.{}", entry));
  std::uint64_t lds = shared == nullptr ? 0 : shared->size;
  if (elf.find(".nv.shared.reserved.0") != nullptr && lds >= kCudaReservedBytes) lds -= kCudaReservedBytes;
  facts.kernel.lds_bytes = as_int(static_cast<std::int64_t>(std::min<std::uint64_t>(lds, 1U << 30U)));
  return facts;
}

}  // namespace

std::string_view code_object_suffix(const GpuTarget& target) {
  return target.vendor == driver::Vendor::kAmd ? ".hsaco" : ".cubin";
}

CodeObjectFacts read_code_object(Bytes code, const GpuTarget& target, std::string_view entry) {
  const auto elf = ElfImage::parse(code);
  if (!elf) refuse(entry, "it is not a 64-bit ELF file, or a damaged one");
  const bool amd = target.vendor == driver::Vendor::kAmd;
  if (elf->machine != (amd ? kMachineAmdGpu : kMachineCuda))
    refuse(entry, fmt::format("it is for ELF machine {}, not for {}", elf->machine, target.name));
  CodeObjectFacts facts = amd ? read_amd(*elf, target, entry) : read_cubin(*elf, target, entry);
  const KernelFacts& kernel = facts.kernel;
  if (facts.threads > 0)
    facts.kernel.occupancy =
        occupancy(target, facts.threads, kernel.registers, kernel.scalar_registers, kernel.lds_bytes);
  return facts;
}

}  // namespace forge::codegen

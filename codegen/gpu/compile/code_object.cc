#include "codegen/gpu/compile/code_object.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "codegen/gpu/compile/elf_image.h"
#include "codegen/gpu/compile/msgpack.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

using Bytes = std::span<const std::byte>;
using Kind = MsgPackItem::Kind;

constexpr std::uint16_t kMachineAmdGpu = 224, kMachineCuda = 190;
/// Source: LLVM's AMDGPUUsage, "Code Object V3 and Above Note Records".
constexpr std::uint32_t kNoteAmdGpuMetadata = 32;
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

/// A number of a kernel's metadata and where it goes.
struct Field {
  std::string_view key;
  int* value;
};

/// Reads one kernel's map into `facts`; answers its name, or nothing for damaged bytes.
std::optional<std::string_view> read_amd_kernel(MsgPackReader& reader, CodeObjectFacts& facts) {
  const std::array fields{Field{".vgpr_count", &facts.kernel.registers},
                          Field{".sgpr_count", &facts.kernel.scalar_registers},
                          Field{".private_segment_fixed_size", &facts.kernel.spill_bytes},
                          Field{".group_segment_fixed_size", &facts.kernel.lds_bytes},
                          Field{".wavefront_size", &facts.kernel.wave},
                          Field{".max_flat_workgroup_size", &facts.threads},
                          Field{".vgpr_spill_count", &facts.register_spills},
                          Field{".sgpr_spill_count", &facts.scalar_spills}};
  const auto pairs = reader.map();
  if (!pairs) return std::nullopt;
  std::string_view name;
  for (std::uint32_t i = 0; i < *pairs; ++i) {
    const auto key = reader.next();
    if (!key || key->kind != Kind::kString) return std::nullopt;
    const auto field = std::ranges::find(fields, key->string, &Field::key);
    if (field == fields.end() && key->string != ".name") {
      if (!reader.skip()) return std::nullopt;
      continue;
    }
    const auto value = reader.next();
    if (!value || value->kind != (field == fields.end() ? Kind::kString : Kind::kInteger)) return std::nullopt;
    if (field == fields.end())
      name = value->string;
    else
      *field->value = as_int(value->integer);
  }
  return name;
}

/// Is `text` ("amdgcn-amd-amdhsa--gfx942:sramecc+", before V4 "amdgcn-amd-amdhsa-gfx942") of the target?
bool names_target(std::string_view text, std::string_view target) {
  text = text.substr(0, text.find(':'));
  return text.ends_with(target) && text.size() > target.size() && text[text.size() - target.size() - 1] == '-';
}

/// False for damaged bytes. `found`: the kernel was there.
bool read_amd_metadata(Bytes note, const GpuTarget& target, std::string_view entry, CodeObjectFacts& facts,
                       bool& found) {
  MsgPackReader reader(note);
  const auto pairs = reader.map();
  if (!pairs) return false;
  for (std::uint32_t i = 0; i < *pairs; ++i) {
    const auto key = reader.next();
    if (!key || key->kind != Kind::kString) return false;
    if (key->string == "amdhsa.target") {
      const auto value = reader.next();
      if (!value || value->kind != Kind::kString) return false;
      if (!names_target(value->string, target.name))
        refuse(entry, fmt::format("it is for {}, not for {}", printable(value->string), target.name));
    } else if (key->string == "amdhsa.kernels") {
      const auto kernels = reader.array();
      if (!kernels) return false;
      for (std::uint32_t k = 0; k < *kernels; ++k) {
        CodeObjectFacts kernel;
        const auto name = read_amd_kernel(reader, kernel);
        if (!name) return false;
        if (*name == entry) facts = kernel, found = true;
      }
    } else if (!reader.skip()) {
      return false;
    }
  }
  return true;
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
  CodeObjectFacts facts;
  bool found = false;
  if (!read_amd_metadata(*note, target, entry, facts, found)) refuse(entry, "its metadata is damaged");
  if (!found) refuse(entry, "it has no such kernel");
  facts.compiler_text = compiler_text(elf);
  return facts;
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

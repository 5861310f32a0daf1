#include "codegen/gpu/compile/elf_image.h"

#include <elf.h>

#include <algorithm>

namespace forge::codegen {
namespace {

/// The text at `offset` of a string table, up to its zero byte; empty where there is none.
std::string_view string_at(std::span<const std::byte> table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest(reinterpret_cast<const char*>(table.data()) + offset, table.size() - offset);
  const auto end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

}  // namespace

std::optional<ElfImage> ElfImage::parse(std::span<const std::byte> image) {
  const auto header = read_at<Elf64_Ehdr>(image, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_shentsize != sizeof(Elf64_Shdr))
    return std::nullopt;

  ElfImage elf;
  elf.machine = header->e_machine;
  std::vector<Elf64_Shdr> rows;
  for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
    if (header->e_shoff > image.size()) return std::nullopt;
    const auto row = read_at<Elf64_Shdr>(image, header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!row) return std::nullopt;
    const bool in_file = row->sh_type != SHT_NOBITS && row->sh_type != SHT_NULL;
    if (in_file && (row->sh_offset > image.size() || image.size() - row->sh_offset < row->sh_size)) return std::nullopt;
    rows.push_back(*row);
    elf.sections.push_back({.type = row->sh_type,
                            .info = row->sh_info,
                            .size = row->sh_size,
                            .bytes = in_file ? image.subspan(row->sh_offset, row->sh_size) : image.subspan(0, 0)});
  }
  if (header->e_shstrndx >= rows.size()) return std::nullopt;
  const auto names = elf.sections[header->e_shstrndx].bytes;
  for (std::size_t i = 0; i < rows.size(); ++i) elf.sections[i].name = string_at(names, rows[i].sh_name);
  return elf;
}

const ElfSection* ElfImage::find(std::string_view name) const {
  const auto found = std::ranges::find(sections, name, &ElfSection::name);
  return found == sections.end() ? nullptr : &*found;
}

}  // namespace forge::codegen

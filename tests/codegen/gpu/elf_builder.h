#pragma once
// Builders of small ELF files and MessagePack texts, for tests of the code-object reader.

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace forge::codegen::tests {

struct SectionDraft {
  std::string name;
  std::uint32_t type = SHT_PROGBITS, info = 0;
  std::string bytes;
  std::uint64_t size = 0;  ///< size in memory, for NOBITS sections
};

template <typename T>
void append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

/// Writes the header, the bytes of the sections and the section table. The last section is the section-name table.
inline std::string make_elf(std::uint16_t machine, std::vector<SectionDraft> sections) {
  std::string names(1, '\0');
  sections.insert(sections.begin(), SectionDraft{.name = "", .type = SHT_NULL});
  sections.push_back({.name = ".shstrtab", .type = SHT_STRTAB});
  std::vector<Elf64_Shdr> rows;
  for (const auto& section : sections) {
    Elf64_Shdr row{};
    row.sh_name = static_cast<std::uint32_t>(names.size());
    row.sh_type = section.type;
    row.sh_info = section.info;
    names += section.name + '\0';
    rows.push_back(row);
  }
  sections.back().bytes = names;
  std::string body;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    rows[i].sh_offset = sizeof(Elf64_Ehdr) + body.size();
    rows[i].sh_size = sections[i].type == SHT_NOBITS ? sections[i].size : sections[i].bytes.size();
    if (sections[i].type != SHT_NOBITS) body += sections[i].bytes;
  }
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = machine;
  header.e_shoff = sizeof(Elf64_Ehdr) + body.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<std::uint16_t>(rows.size());
  header.e_shstrndx = static_cast<std::uint16_t>(rows.size() - 1);
  std::string out;
  append(out, header);
  out += body;
  for (const auto& row : rows) append(out, row);
  return out;
}

/// Encoders of MessagePack items.
inline std::string text_item(const std::string& text) {
  return text.size() < 32 ? static_cast<char>(0xa0 | text.size()) + text
                          : std::string("\xd9") + static_cast<char>(text.size()) + text;
}
inline std::string number_item(unsigned number) {
  if (number < 128) return {static_cast<char>(number)};
  return {'\xce', static_cast<char>(number >> 24), static_cast<char>(number >> 16), static_cast<char>(number >> 8),
          static_cast<char>(number)};
}
inline std::string map_head(unsigned pairs) {
  return {'\xde', static_cast<char>(pairs >> 8), static_cast<char>(pairs)};
}
inline std::string array_head(unsigned items) {
  return {static_cast<char>(0x90 | items)};
}

/// A note record that holds AMD metadata.
inline std::string metadata_note(std::string metadata) {
  std::string note;
  append(note, Elf64_Nhdr{7, static_cast<std::uint32_t>(metadata.size()), 32});
  note += std::string("AMDGPU\0\0", 8) + metadata;
  while (note.size() % 4 != 0) note += '\0';
  return note;
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace forge::codegen::tests

#include "tools/inspect/inspect_chat.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "support/error.h"
#include "support/os/console.h"
#include "text/chat/chat.h"

namespace forge::tools {
namespace {

std::string read_all(std::FILE* file, const std::string& name, std::size_t bytes_max) {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file)) {
    text.append(buffer, got);
    if (text.size() > bytes_max) throw Error(ErrorCode::kIo, fmt::format("{} is too large", name));
  }
  if (std::ferror(file) != 0)
    throw Error(ErrorCode::kIo, fmt::format("cannot read {}", printable(name)), std::strerror(errno));
  return text;
}

std::string read_file(const std::string& path, std::size_t bytes_max) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file)
    throw Error(ErrorCode::kIo, fmt::format("cannot open {}", printable(path)), std::strerror(errno),
                "check the path after --template");
  return read_all(file.get(), path, bytes_max);
}

}  // namespace

void inspect_render_chat(const std::string& template_file) {
  const text::ChatTemplate compiled =
      text::ChatTemplate::parse(read_file(template_file, text::ChatTemplate::kSourceBytesMax));
  const text::ChatRequest request = text::parse_chat_request(read_all(stdin, "standard input", 256u << 20));
  const std::string prompt = text::render_chat(compiled, request);
  Output().write(prompt);
}

}  // namespace forge::tools

#include "codegen/gpu/compile/compile_wire.h"

#include <cstring>

namespace forge::codegen {
namespace {

template <typename Number>
void append_number(std::string& out, Number number) {
  char bytes[sizeof(Number)];
  std::memcpy(bytes, &number, sizeof(Number));
  out.append(bytes, sizeof(Number));
}

template <typename Number>
std::optional<Number> take_number(std::string_view& bytes) {
  if (bytes.size() < sizeof(Number)) return std::nullopt;
  Number number;
  bytes.copy(reinterpret_cast<char*>(&number), sizeof(Number));
  bytes.remove_prefix(sizeof(Number));
  return number;
}

std::string frame(const std::vector<std::string>& texts) {
  const std::string body = encode_texts(texts);
  std::string out;
  append_number(out, static_cast<std::uint64_t>(body.size()));
  return out + body;
}

}  // namespace

std::string encode_texts(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) {
    append_number(out, static_cast<std::uint64_t>(text.size()));
    out += text;
  }
  return out;
}

std::optional<std::vector<std::string>> decode_texts(std::string_view bytes) {
  std::vector<std::string> texts;
  while (!bytes.empty()) {
    const auto size = take_number<std::uint64_t>(bytes);
    if (!size || *size > bytes.size()) return std::nullopt;
    texts.emplace_back(bytes.substr(0, *size));
    bytes.remove_prefix(*size);
  }
  return texts;
}

std::string encode(const CompileRequest& request) {
  std::vector<std::string> texts{std::to_string(static_cast<int>(request.kind)), request.program, request.name,
                                 request.text};
  texts.insert(texts.end(), request.options.begin(), request.options.end());
  return frame(texts);
}

std::string encode(const CompileReply& reply) {
  return frame({reply.failure, reply.log, reply.code});
}

std::uint64_t frame_bytes(std::string_view head) {
  return take_number<std::uint64_t>(head).value_or(kFrameBytesMax + 1);
}

std::optional<CompileRequest> decode_request(std::string_view body) {
  auto texts = decode_texts(body);
  if (!texts || texts->size() < 4) return std::nullopt;
  auto& t = *texts;
  if (t[0] != "0" && t[0] != "1" && t[0] != "2") return std::nullopt;
  CompileRequest request{static_cast<CompilerKind>(t[0][0] - '0'), t[1], t[2], t[3], {}};
  request.options.assign(t.begin() + 4, t.end());
  return request;
}

std::optional<CompileReply> decode_reply(std::string_view body) {
  auto texts = decode_texts(body);
  if (!texts || texts->size() != 3) return std::nullopt;
  auto& t = *texts;
  return CompileReply{std::move(t[0]), std::move(t[1]), std::move(t[2])};
}

}  // namespace forge::codegen

#pragma once
// The protocol between the compile service and its helper process (forge-kernel-compiler) on a socket. A message is a
// frame:
//
//   | bytes of the body: u64 | length: u64 | text | length: u64 | text | ...          (host byte order)
//
// The kernel cache stores its entries as the same lists of texts.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forge::codegen {

/// The helper refuses to work for a service with another version.
inline constexpr std::string_view kWireVersion = "1";
/// The descriptor of the helper's end of the socket.
inline constexpr int kHelperSocket = 3;
/// Most bytes of a frame's body; a longer one is an error.
inline constexpr std::uint64_t kFrameBytesMax = std::uint64_t{64} << 20;

enum class CompilerKind : std::uint8_t { kHiprtc, kClang, kNvrtc };

struct CompileRequest {
  CompilerKind kind = CompilerKind::kHiprtc;
  std::string program;  ///< clang's path
  std::string name;     ///< of the kernel; files are named after it
  std::string text;     ///< self-contained
  std::vector<std::string> options;
};

/// `failure` is empty on success.
struct CompileReply {
  std::string failure;  ///< one line
  std::string log;      ///< the compiler's messages
  std::string code;
};

/// A list of texts as bytes, and back. Decoding returns nothing if the bytes are not a complete list.
[[nodiscard]] std::string encode_texts(const std::vector<std::string>& texts);
[[nodiscard]] std::optional<std::vector<std::string>> decode_texts(std::string_view bytes);

/// A message as a frame.
[[nodiscard]] std::string encode(const CompileRequest& request);
[[nodiscard]] std::string encode(const CompileReply& reply);
inline constexpr std::size_t kFrameHead = 8;
/// The length of the body, from a frame's first 8 bytes; more than kFrameBytesMax if there are fewer than 8.
[[nodiscard]] std::uint64_t frame_bytes(std::string_view head);
/// Decodes a frame's body; nothing if it is malformed.
[[nodiscard]] std::optional<CompileRequest> decode_request(std::string_view body);
[[nodiscard]] std::optional<CompileReply> decode_reply(std::string_view body);

}  // namespace forge::codegen

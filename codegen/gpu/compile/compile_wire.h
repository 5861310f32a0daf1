#pragma once
// What the compile service and its helper process (forge-kernel-compiler) say to each other over a socket: frames of a
// length and a list of texts. The kernel cache keeps its entries in the same form.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forge::codegen {

/// The helper refuses a service of another version.
inline constexpr std::string_view kWireVersion = "1";
/// The helper's end of the socket.
inline constexpr int kHelperSocket = 3;
/// Of one frame: what is longer is not one.
inline constexpr std::uint64_t kFrameBytesMax = std::uint64_t{64} << 20;

enum class CompilerKind : std::uint8_t { kHiprtc, kClang, kNvrtc };

struct CompileRequest {
  CompilerKind kind = CompilerKind::kHiprtc;
  std::string program;  ///< clang's path
  std::string name;     ///< of the kernel; files are named after it
  std::string text;     ///< self-contained
  std::vector<std::string> options;
};

/// `failure` is empty when all went well.
struct CompileReply {
  std::string failure;  ///< one line
  std::string log;      ///< the compiler's messages
  std::string code;
};

/// A list of texts as bytes, and back. Decoding answers nothing for anything but a whole list.
[[nodiscard]] std::string encode_texts(const std::vector<std::string>& texts);
[[nodiscard]] std::optional<std::vector<std::string>> decode_texts(std::string_view bytes);

/// Frames: 8 bytes of length, then that many.
[[nodiscard]] std::string encode(const CompileRequest& request);
[[nodiscard]] std::string encode(const CompileReply& reply);
inline constexpr std::size_t kFrameHead = 8;
/// The length that a frame's head gives.
[[nodiscard]] std::uint64_t frame_bytes(std::string_view head);
/// A frame without its head. Nothing when it is not one.
[[nodiscard]] std::optional<CompileRequest> decode_request(std::string_view body);
[[nodiscard]] std::optional<CompileReply> decode_reply(std::string_view body);

}  // namespace forge::codegen

// A helper process that misbehaves on request, for testing that the compile service survives it. The first word of the
// source text (after a #line directive) selects the behaviour:
//   hang, abort, exit, garbage; huge: a frame with an absurd length; child: hangs and leaves a hanging child process;
//   chatter: floods stderr, then aborts; slow: answers after 50 ms; spin: computes for ever; starved: computes for
//   0.3 s in total, spread over 2.5 s; "once-abort FILE": creates FILE and aborts if FILE does not exist yet.
// Any other word: answers with the text as code.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "codegen/gpu/compile/compile_wire.h"

namespace {

using namespace forge::codegen;

bool receive(std::string& bytes) {
  for (std::size_t got = 0; got < bytes.size();) {
    const ssize_t count = recv(kHelperSocket, bytes.data() + got, bytes.size() - got, 0);
    if (count <= 0) return false;
    got += static_cast<std::size_t>(count);
  }
  return true;
}

void answer(const std::string& bytes) {
  if (send(kHelperSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) std::exit(9);
}

[[noreturn]] void hang() {
  while (true) pause();
}

/// Consumes `ticks` more ticks of CPU time.
void compute(std::clock_t ticks) {
  for (const std::clock_t end = std::clock() + ticks; std::clock() < end;) {
  }
}

void behave(const CompileRequest& request) {
  const std::size_t start = request.text.starts_with("#line") ? request.text.find('\n') + 1 : 0;
  std::istringstream words(request.text.substr(start));
  std::string word, file;
  words >> word >> file;
  if (word == "hang") hang();
  if (word == "child") {
    const pid_t child = fork();
    if (child == 0) hang();
    std::ofstream(file) << child << "\n" << getpid() << std::endl;
    hang();
  }
  if (word == "abort") {
    std::cerr << "LLVM ERROR: no such target" << std::endl;
    std::abort();
  }
  if (word == "chatter") {
    for (int i = 0; i < 100'000; ++i) std::cerr << "line " << i << "\n";
    std::abort();
  }
  if (word == "once-abort" && !std::ifstream(file)) {
    std::ofstream(file) << "x";
    std::abort();
  }
  if (word == "exit") std::exit(3);
  if (word == "garbage") return answer(std::string("\x05\0\0\0\0\0\0\0hello", 13));
  if (word == "huge") return answer(std::string(8, '\xff'));
  if (word == "slow") usleep(50'000);
  while (word == "spin") compute(CLOCKS_PER_SEC);
  for (int i = 0; word == "starved" && i < 20; ++i) {
    usleep(110'000);
    compute(CLOCKS_PER_SEC * 15 / 1000);
  }
  answer(encode(CompileReply{"", "a log", request.text}));
}

}  // namespace

int main() {
  for (std::string head(kFrameHead, '\0'), body; receive(head);) {
    body.assign(frame_bytes(head), '\0');
    if (!receive(body)) return 1;
    const auto request = decode_request(body);
    if (!request) return 1;
    behave(*request);
  }
}

#include "tools/cli/line_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <cwchar>

#include "support/error.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"
#include "tools/run/chat_history.h"

namespace forge::tools {
namespace {

Error failed(std::string_view what) {
  return Error(ErrorCode::kIo, std::string(what), std::strerror(errno), "give the prompt with -p");
}

/// The write end of the pipe that the signal handler writes to (the self-pipe trick). A flag would not do: a signal may
/// arrive between the check of the flag and poll(), or on another thread, and poll() would then keep sleeping.
volatile std::sig_atomic_t signal_pipe = -1;

void tell_signal(int signal) {
  const int error = errno;
  const char number = static_cast<char>(signal);
  (void)!::write(static_cast<int>(signal_pipe), &number, 1);
  errno = error;
}

/// While it exists, signals are written as bytes into the pipe, so that poll() can wait for them together with input.
/// Signals that the process ignores stay ignored.
class SignalBytes {
 public:
  explicit SignalBytes(int write_end) {
    signal_pipe = write_end;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction action{};
      if (sigaction(kSignals.at(i), nullptr, &before_.at(i)) != 0 || before_.at(i).sa_handler == SIG_IGN) continue;
      action.sa_handler = tell_signal;
      (void)sigaction(kSignals.at(i), &action, nullptr);
    }
  }
  ~SignalBytes() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) (void)sigaction(kSignals.at(i), &before_.at(i), nullptr);
  }
  SignalBytes(const SignalBytes&) = delete;
  SignalBytes& operator=(const SignalBytes&) = delete;

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT};
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// Reads bytes of stdin, and signals in between.
class Input {
 public:
  Input() {
    if (::pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw failed("cannot wait for input");
  }
  ~Input() {
    for (const int end : pipe_) ::close(end);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  [[nodiscard]] int write_end() const { return pipe_[1]; }

  /// Waits for the next byte and returns it, or kEnd at the end of input, or kSignal + N for signal N.
  static constexpr int kEnd = -1, kSignal = 256;
  int next() {
    if (at_ < size_) return static_cast<unsigned char>(buffer_.at(at_++));
    while (true) {
      std::array<pollfd, 2> waited{pollfd{.fd = pipe_[0], .events = POLLIN, .revents = 0},
                                   pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}};
      if (::poll(waited.data(), waited.size(), -1) < 0 && errno != EINTR) throw failed("cannot wait for input");
      char signal = 0;
      if (::read(pipe_[0], &signal, 1) == 1) return kSignal + signal;
      if (waited[1].revents == 0) continue;
      const ssize_t n = ::read(STDIN_FILENO, buffer_.data(), buffer_.size());
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) return kEnd;  // EIO: the terminal is gone
      size_ = static_cast<std::size_t>(n);
      at_ = 1;
      return static_cast<unsigned char>(buffer_[0]);
    }
  }
  void drop() { at_ = size_ = 0; }

 private:
  std::array<int, 2> pipe_{-1, -1};
  std::array<char, 4096> buffer_{};
  std::size_t at_ = 0, size_ = 0;
};

}  // namespace

/// Base of the two ways to read lines; handles signals.
class LineReader::Source {
 public:
  Source() = default;
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  Event read(const std::string& prompt, std::string& line) {
    if (consume_interrupt()) return Event::kCancelled;  // Ctrl-C just after the answer had ended
    ending_signal_ = 0;
    const auto event = [&] {
      const SignalBytes signals(input_.write_end());
      return next_line(prompt, line);
    }();
    if (ending_signal_ != 0) throw Interrupted{ending_signal_};
    return event;
  }
  virtual void remember(std::string_view line) = 0;

 protected:
  virtual Event next_line(const std::string& prompt, std::string& line) = 0;
  /// True if the signal ends the line; a resize or a continue (SIGWINCH, SIGCONT) does not.
  bool ends_line(int signal) {
    if (signal == SIGWINCH || signal == SIGCONT) return false;
    input_.drop();
    if (signal != SIGINT) ending_signal_ = signal;
    return true;
  }
  Input& input() { return input_; }

 private:
  Input input_;
  int ending_signal_ = 0;
};

/// Lines as the terminal driver delivers them, with backspace as the only editing.
class LineReader::Plain final : public Source {
 public:
  void remember(std::string_view) override {}

 protected:
  Event next_line(const std::string& prompt, std::string& line) override {
    if (::isatty(STDERR_FILENO) == 1) say(prompt);
    line.clear();
    while (true) {
      const int byte = input().next();
      if (byte == Input::kEnd) return line.empty() ? Event::kEnd : Event::kLine;
      if (byte >= Input::kSignal) {
        if (ends_line(byte - Input::kSignal)) return Event::kCancelled;
      } else if (byte == '\n') {
        return Event::kLine;
      } else {
        line += static_cast<char>(byte);
      }
    }
  }
};

/// Lines edited with libedit, through its wide-character interface.
class LineReader::Edited final : public Source {
 public:
  explicit Edited(const std::vector<std::string>& history)
      : out_(::fdopen(::dup(STDERR_FILENO), "w")), quiet_(std::fopen("/dev/null", "w")), history_(::history_winit()) {
    if (out_ == nullptr || history_ == nullptr) throw failed("cannot edit lines");
    // libedit's messages about unknown terminals are discarded: it still works on them.
    edit_ = ::el_init("forge-run", stdin, out_, quiet_ != nullptr ? quiet_ : stderr);
    if (edit_ == nullptr) throw failed("cannot edit lines");
    ::el_wset(edit_, EL_CLIENTDATA, this);
    ::el_wset(edit_, EL_PROMPT, prompt_of);
    ::el_wset(edit_, EL_GETCFN, read_character);
    ::el_wset(edit_, EL_EDITOR, L"emacs");
    HistEventW event;
    ::history_w(history_, &event, H_SETSIZE, static_cast<int>(ChatHistory::kEntriesMax));
    ::history_w(history_, &event, H_SETUNIQUE, 1);
    ::el_wset(edit_, EL_HIST, ::history_w, history_);
    ::el_source(edit_, nullptr);  // the user's ~/.editrc
    for (const auto& line : history) add(line);
  }
  ~Edited() override {
    ::history_wend(history_);
    ::el_end(edit_);
    (void)std::fclose(out_);
    if (quiet_ != nullptr) (void)std::fclose(quiet_);
  }
  void remember(std::string_view line) override { add(std::string(line)); }

 protected:
  Event next_line(const std::string& prompt, std::string& line) override {
    prompt_ = widen(prompt);
    cancelled_ = false;
    ::el_resize(edit_);
    // Switch to raw mode before libedit prints the prompt. Otherwise a Ctrl-D typed right after the prompt would still
    // be handled by the terminal driver and lost.
    ::el_wset(edit_, EL_PREP_TERM, 1);
    int count = 0;
    const wchar_t* typed = ::el_wgets(edit_, &count);
    (void)std::fflush(out_);
    if (cancelled_) return Event::kCancelled;
    if (typed == nullptr || count <= 0) return Event::kEnd;
    line = narrow({typed, static_cast<std::size_t>(count)});
    if (line.ends_with('\n')) line.pop_back();
    return Event::kLine;
  }

 private:
  static Edited& self(EditLine* edit) {
    void* data = nullptr;
    ::el_wget(edit, EL_CLIENTDATA, &data);
    return *static_cast<Edited*>(data);
  }
  static wchar_t* prompt_of(EditLine* edit) { return self(edit).prompt_.data(); }

  /// Called by libedit for the next character. Returns 1 and stores it in `out`; 0 at the end; -1 cancels the line.
  static int read_character(EditLine* edit, wchar_t* out) {
    auto& reader = self(edit);
    std::mbstate_t state{};
    while (true) {
      const int byte = reader.input().next();
      if (byte == Input::kEnd) return 0;
      if (byte >= Input::kSignal) {
        const int signal = byte - Input::kSignal;
        reader.cancelled_ = reader.ends_line(signal);
        if (reader.cancelled_) return -1;
        if (signal == SIGCONT) ::el_wset(edit, EL_PREP_TERM, 1);  // raw mode again: the shell has reset the terminal
        ::el_resize(edit);
        ::el_wset(edit, EL_REFRESH);
        continue;
      }
      const char c = static_cast<char>(byte);
      const std::size_t used = std::mbrtowc(out, &c, 1, &state);
      if (used == static_cast<std::size_t>(-2)) continue;
      if (used == static_cast<std::size_t>(-1)) *out = L'\xFFFD';
      return 1;
    }
  }

  void add(const std::string& line) {
    HistEventW event;
    ::history_w(history_, &event, H_ENTER, widen(line).c_str());
  }

  static std::wstring widen(std::string_view text) {
    std::wstring wide;
    std::mbstate_t state{};
    while (!text.empty()) {
      wchar_t c = 0;
      std::size_t used = std::mbrtowc(&c, text.data(), text.size(), &state);
      if (used > text.size()) {  // an error code: invalid or incomplete UTF-8
        c = L'\xFFFD';
        used = 1;
        state = {};
      }
      wide += c;
      text.remove_prefix(std::max<std::size_t>(used, 1));
    }
    return wide;
  }
  static std::string narrow(std::wstring_view wide) {
    std::string text;
    std::mbstate_t state{};
    std::array<char, 16> bytes;  // MB_LEN_MAX
    for (const wchar_t c : wide)
      if (const std::size_t n = std::wcrtomb(bytes.data(), c, &state); n <= bytes.size()) text.append(bytes.data(), n);
    return text;
  }

  std::FILE *out_, *quiet_;
  HistoryW* history_;
  EditLine* edit_ = nullptr;
  std::wstring prompt_;
  bool cancelled_ = false;
};

LineReader::LineReader(const std::vector<std::string>& history) {
  (void)std::setlocale(LC_CTYPE, "C.UTF-8");  // models use UTF-8, whatever the user's locale is
  if (::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1 && !terminal_is_dumb())
    source_ = std::make_unique<Edited>(history);
  else
    source_ = std::make_unique<Plain>();
}
LineReader::~LineReader() = default;

LineReader::Event LineReader::read(const std::string& prompt, std::string& line) {
  return source_->read(prompt, line);
}

void LineReader::remember(std::string_view line) {
  source_->remember(line);
}

}  // namespace forge::tools

// A conversation without a terminal: which tokens of a turn are fed again and which stay in the KV cache, and the state
// after an error or Ctrl-C.

#include "session/conversation.h"

#include <catch2/catch.hpp>
#include <csignal>

#include "support/error.h"
#include "support/os/interrupt.h"
#include "tests/e2e/tiny_model.h"
#include "tests/support/error_of.h"

namespace forge::session {
namespace {

constexpr std::size_t kVocab = 90;
constexpr std::int64_t kContext = 200;

/// A toy tokenizer: one token per letter, and a role token before each message (88: user, 89: assistant). The prompt
/// ends with 89.
std::vector<std::int32_t> encode(std::span<const Message> messages) {
  std::vector<std::int32_t> ids;
  for (const auto& message : messages) {
    ids.push_back(message.role == "system" ? 87 : message.role == "user" ? 88 : 89);
    for (const char c : message.content) ids.push_back(c - ' ');
  }
  ids.push_back(89);
  return ids;
}

/// Collects answer tokens as text. Tokens from 80 on have no letter.
struct Letters {
  AnswerSink sink() {
    return {.take = [this](std::int32_t id) -> std::optional<Finish> {
              text += static_cast<char>(' ' + id % 80);
              return after_token ? after_token() : std::nullopt;
            },
            .finish = [this] { return text; }};
  }
  std::string text;
  std::function<std::optional<Finish>()> after_token;
};

struct Chat {
  explicit Chat(std::optional<std::string> system = {}) : conversation(sequences, kVocab, encode, system) {}

  Answer ask(std::string question, std::int64_t tokens = 6) {
    Letters letters;
    return conversation.ask(std::move(question), {.tokens_max = tokens}, letters.sink());
  }

  tests::TinyModel model{{.context = kContext}};
  std::unique_ptr<runtime::CpuExecutor> executor = model.open(1, 1);
  Sequences sequences{*executor, kContext, 1};
  Conversation conversation;
};

/// The reference: the answer to the whole conversation when nothing is cached.
std::vector<std::int32_t> afresh(std::span<const Message> messages, std::int64_t tokens = 6) {
  Chat other;
  return generate(other.sequences, kVocab, encode(messages), {.tokens_max = tokens},
                  [](std::int32_t) { return std::nullopt; })
      .tokens;
}

}  // namespace

TEST_CASE("a turn feeds only new tokens, and answers as if everything had been fed") {
  Chat chat;
  const auto first = chat.ask("hello there");
  CHECK(first.generated.held_tokens == 0);
  CHECK(first.generated.tokens == afresh(chat.conversation.messages().first(1)));
  for (int turn = 0; turn < 4; ++turn) {
    const auto before = encode(chat.conversation.messages());
    const auto answer = chat.ask("and then");
    const auto asked = chat.conversation.messages().first(chat.conversation.messages().size() - 1);
    CHECK(answer.generated.tokens == afresh(asked));
    CHECK(answer.generated.prompt_tokens == encode(asked).size());
    // Tokens without a letter are encoded differently in the next turn, so that turn may be fed from there on. The
    // prompt before them stays cached.
    CHECK(answer.generated.held_tokens >= before.size() - 1 - 6);
    CHECK(answer.generated.held_tokens < answer.generated.prompt_tokens);
    CHECK(chat.conversation.held() == chat.sequences.length(0));
    CHECK(chat.conversation.messages().back().content == answer.text);
  }
}

TEST_CASE("an answer that re-encodes to other ids is fed again from the first difference") {
  Chat chat;
  Letters letters;
  auto sink = letters.sink();
  sink.finish = [] { return std::string("other words"); };
  (void)chat.conversation.ask("question", {.tokens_max = 9}, sink);
  const auto answer = chat.ask("more");
  CHECK(answer.generated.held_tokens <= encode(chat.conversation.messages().first(1)).size() + 1);
  CHECK(answer.generated.tokens == afresh(chat.conversation.messages().first(3)));
}

TEST_CASE("the same question again feeds one token for its logits") {
  Chat chat("be brief");
  const auto first = chat.ask("hello");
  chat.conversation.reset();
  CHECK(chat.conversation.messages().size() == 1);
  const auto again = chat.ask("hello");
  CHECK(again.generated.held_tokens == again.generated.prompt_tokens - 1);
  CHECK(again.generated.tokens == first.generated.tokens);
  chat.conversation.reset();
  const auto other = chat.ask("bye");
  CHECK(other.generated.held_tokens == 10);  // the system message and the next message's role token
  CHECK(other.generated.tokens == afresh(chat.conversation.messages().first(2)));
}

TEST_CASE("a conversation that does not fit the context is refused with both numbers, and the chat goes on") {
  Chat chat;
  const auto first = chat.ask("a");
  const auto line = tests::error_of([&] { (void)chat.ask(std::string(kContext, 'x')); });
  CHECK(line.find("prompt") != std::string::npos);
  CHECK(line.find("200 tokens") != std::string::npos);
  CHECK(line.find("/reset") != std::string::npos);
  CHECK(chat.conversation.messages().size() == 2);
  const auto full = chat.ask("go on", -1);
  CHECK(full.generated.finish == Finish::kContext);
  CHECK(chat.conversation.held() == kContext);
  CHECK(tests::error_of([&] { (void)chat.ask("more"); }).find("/reset") != std::string::npos);
  chat.conversation.reset();
  CHECK(chat.ask("a").generated.tokens == first.generated.tokens);
}

TEST_CASE("an answer interrupted by Ctrl-C is kept up to that point") {
  Chat chat;
  Letters letters;
  letters.after_token = [count = 0]() mutable -> std::optional<Finish> {
    if (++count == 3) std::raise(SIGINT);
    return std::nullopt;
  };
  clear_interrupt();  // installs the signal handlers
  const auto stopped = chat.conversation.ask("question", {.tokens_max = 20}, letters.sink());
  CHECK(consume_interrupt());
  CHECK(!consume_interrupt());
  CHECK(stopped.generated.finish == Finish::kInterrupted);
  CHECK(stopped.generated.tokens.size() == 3);
  CHECK(chat.conversation.messages().back().content == stopped.text);
  const auto more = chat.ask("more");
  CHECK(more.generated.tokens == afresh(chat.conversation.messages().first(3)));

  // Interrupted before the first token: only the question is removed.
  const auto before = chat.conversation.messages().size();
  std::raise(SIGINT);
  CHECK(chat.ask("lost").generated.finish == Finish::kInterrupted);
  CHECK(consume_interrupt());
  CHECK(chat.conversation.messages().size() == before);
  const auto last = chat.ask("last");
  CHECK(last.generated.tokens == afresh(chat.conversation.messages().first(before + 1)));
}

TEST_CASE("another signal ends the chat") {
  Chat chat;
  clear_interrupt();
  std::raise(SIGTERM);
  int signal = 0;
  try {
    (void)chat.ask("question");
  } catch (const Interrupted& interrupt) {
    signal = interrupt.signal;
  }
  clear_interrupt();
  CHECK(signal == SIGTERM);
}

}  // namespace forge::session

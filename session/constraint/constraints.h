#pragma once
// Constraints of one model: compiled once for each source, shared by all sequences, and made into what the engine
// takes.

#include <chrono>
#include <cstdint>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/token_constraint.h"
#include "text/constraint/compile.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::session {

using text::constraint::CompiledConstraint;
using text::constraint::ConstraintSource;

/// When a constraint begins, if not with the first token: at a marker in the generated text.
struct ConstraintGate {
  /// The constraint begins behind the first of them: the end of reasoning, or what begins a call.
  std::vector<std::string> markers;
  /// What the text begins with if it goes on to a marker; any other beginning is the constraint's. Empty: the text is
  /// always before a marker first.
  std::string opener;
  bool may_end = false;       ///< the text may end before a marker
  bool keeps_marker = false;  ///< the constraint's text begins with the marker
  bool at_start = false;      ///< only a text that begins with a marker, white space aside, is constrained
  std::string before;         ///< text in front of the generated one, whose end may begin a marker
  /// Markers in reasoning do not count: text from the opening, empty if the prompt has it, to the closing one.
  std::string reasoning_open, reasoning_close;
};

/// The tokens of a model, as its constraints need them. Immutable.
struct ConstraintVocabulary {
  const text::Tokenizer* tokenizer = nullptr;
  std::shared_ptr<const text::constraint::TokenTrie> trie;
  std::size_t vocab = 0;                 ///< columns of the model's logits; can differ from the tokenizer's tokens
  std::vector<std::uint32_t> ends = {};  ///< [ceil(vocab / 32)] mask of the tokens that end a generation
  bool shows_control = false;            ///< the trie has control tokens
};

/// See the head of this file. Thread-safe.
class Constraints {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{256} << 20;
  static constexpr std::size_t kBusyFactor = 4;  ///< times bytes_max: while more is in use, new sources are refused
  static constexpr std::chrono::milliseconds kRefusedFor{10'000};

  /// `tokenizer` must outlive this. `bytes_max`: of the compiled constraints that are kept, the longest unused of which
  /// are forgotten first; those in use live as long as their requests, also queued ones. `shown`: control tokens that
  /// stand for their spelling, as in the text of calls. `refused_for`: how long a refusal is kept, because clients try
  /// again at once what took seconds to find out.
  Constraints(const text::Tokenizer& tokenizer, std::size_t vocab, std::size_t bytes_max = kBytesMax,
              std::vector<std::int32_t> shown = {}, std::chrono::milliseconds refused_for = kRefusedFor)
      : tokenizer_(&tokenizer),
        vocab_(vocab),
        bytes_max_(bytes_max),
        shown_(std::move(shown)),
        refused_for_(refused_for) {}

  /// The constraint of a source; compiled if it is not kept, on the caller's thread, without blocking callers with
  /// other sources. Errors: those of text::constraint::compile; kMemory if those in use take too much already.
  [[nodiscard]] std::shared_ptr<CompiledConstraint> compile(const ConstraintSource& source);
  /// The state of a new sequence. `gate`: when the constraint begins; null: with the first token.
  [[nodiscard]] std::unique_ptr<runtime::TokenConstraint> start(const std::shared_ptr<CompiledConstraint>& compiled,
                                                                const ConstraintGate* gate = nullptr);
  /// Compiled sources that are kept, and how often one was compiled; for tests.
  [[nodiscard]] std::size_t kept() const;
  [[nodiscard]] std::size_t compilations() const;

 private:
  struct Entry {
    ConstraintSource source;
    std::shared_future<std::shared_ptr<CompiledConstraint>> compiled;
    std::optional<std::chrono::steady_clock::time_point> refused_until = std::nullopt;  ///< if it has an error
  };

  std::shared_ptr<const ConstraintVocabulary> vocabulary();
  /// The entry of a source. Precondition: the lock is held.
  std::list<Entry>::iterator find(const ConstraintSource& source);
  void forget_unused();
  [[nodiscard]] static bool is_ready(const Entry& entry);  ///< compiled or refused
  /// Bytes of the compiled constraints that someone else holds, kept or not. Precondition: the lock is held.
  std::size_t bytes_in_use();

  const text::Tokenizer* tokenizer_;
  std::size_t vocab_, bytes_max_;
  std::vector<std::int32_t> shown_;
  std::chrono::milliseconds refused_for_;
  std::once_flag once_;
  std::shared_ptr<const ConstraintVocabulary> vocabulary_;
  mutable std::mutex mutex_;                              ///< protects what follows
  std::list<Entry> entries_;                              ///< the last used first
  std::vector<std::weak_ptr<CompiledConstraint>> alive_;  ///< kept or not
  std::size_t compilations_ = 0;
};

}  // namespace forge::session

#pragma once
// Regular expressions over bytes as hash-consed nodes, matched by derivatives.
//
// The derivative of a language L by a byte b is { w : bw in L }. It exists for every operator here, intersection and
// complement included, so an expression is its own automaton: states are expressions and a step is a derivative
// (sources: Brzozowski, "Derivatives of Regular Expressions", JACM 1964; Owens, Reppy, Turon, "Regular-expression
// derivatives re-examined", JFP 2009). Constructors bring expressions into a normal form (associative, commutative,
// idempotent), which keeps the number of different derivatives finite. A counted repeat is one node whose derivative
// decrements it, so {1,20000} costs no more than a star.
//
// Beyond regular languages, a call stands for an expression that is defined later and may hold the call itself. A state
// then is a concatenation: what is left of the innermost rule, then what is left of the rules around it. So recursive
// grammars need no stack of their own, and equal stacks are one node.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "text/constraint/byte_set.h"

namespace forge::text::constraint {

/// A language: the number of a node in a RegularPool. Equal numbers are equal languages, not the other way round.
using Expr = std::uint32_t;

/// No upper bound of a repeat.
inline constexpr std::uint32_t kUnbounded = UINT32_MAX;

/// Makes and owns expressions. Not thread-safe. Every member that may add nodes throws Error(kMemory) once the pool
/// holds more than its limit, and every member that computes does so once it took too many steps (see begin_work).
class RegularPool {
 public:
  enum class Op : std::uint8_t {
    kEmpty,
    kEpsilon,
    kBytes,
    kConcat,
    kOr,
    kAnd,
    kNot,
    kRepeat,
    kCall,
    kCapture,
    kChoice
  };
  static constexpr Expr kEmpty = 0;    ///< the language without words
  static constexpr Expr kEpsilon = 1;  ///< the language of the empty word
  static constexpr Expr kAll = 2;      ///< every byte sequence
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;
  static constexpr std::uint32_t kMinMax = 1U << 20;  ///< above it, lengths are not told apart

  static constexpr std::uint64_t kWorkMax = 10'000'000;  ///< steps; a second or two

  explicit RegularPool(std::size_t bytes_max = kBytesMax, std::uint64_t work_max = kWorkMax);
  RegularPool(const RegularPool&) = delete;
  RegularPool& operator=(const RegularPool&) = delete;

  [[nodiscard]] Expr bytes(const ByteSet& set);  ///< one byte of the set
  [[nodiscard]] Expr literal(std::string_view text);
  [[nodiscard]] Expr concat(Expr head, Expr tail);
  [[nodiscard]] Expr or_(std::span<const Expr> args);
  [[nodiscard]] Expr or_(std::initializer_list<Expr> args) { return or_(std::span(args.begin(), args.size())); }
  [[nodiscard]] Expr and_(std::span<const Expr> args);
  [[nodiscard]] Expr and_(std::initializer_list<Expr> args) { return and_(std::span(args.begin(), args.size())); }
  [[nodiscard]] Expr containing(std::string_view part);  ///< every byte sequence, UTF-8 or not, with `part` in it
  [[nodiscard]] Expr not_(Expr arg);  ///< every byte sequence, UTF-8 or not, that is no word of `arg`
  /// From `min` to `max` words of `arg`, one after another. Precondition: min <= max.
  [[nodiscard]] Expr repeat(Expr arg, std::uint32_t min, std::uint32_t max);
  [[nodiscard]] Expr star(Expr arg) { return repeat(arg, 0, kUnbounded); }
  /// Every byte of the words replaced by the words of `images` for it. Exact if no image is the beginning of another.
  [[nodiscard]] Expr substitute(Expr expr, const std::array<Expr, 256>& images);
  /// The same language without intersections and complements, as calls, one for each state. Comes back as it is if it
  /// is plain, or if there are more than `states_max`.
  [[nodiscard]] Expr flattened(Expr expr, std::size_t states_max);
  /// All words, ascending, if they are at most `words_max` and have at most `bytes_max` bytes together.
  [[nodiscard]] std::optional<std::vector<std::string>> words(Expr expr, std::size_t words_max, std::size_t bytes_max);
  /// True if a word may begin within a capture; such states differ by what was captured.
  [[nodiscard]] bool captures(Expr expr) const { return nodes_[expr].captures; }
  /// `expr` without what was captured: each capture at its beginning ends with a byte that is in no text, or, if
  /// `loose`, goes on as `finish` has it for the empty word.
  [[nodiscard]] Expr without_captures(Expr expr, bool loose);
  /// The words of `arg` but the empty one.
  [[nodiscard]] Expr without_epsilon(Expr arg);

  /// What is known of a call before its expression is asked for.
  struct CallFacts {
    ByteSet first;          ///< the bytes that its words may begin with, or more
    std::uint32_t min = 1;  ///< bytes of every word; 0 exactly if the empty word is one
  };
  /// A new expression to be defined later. Its language must not be empty, and its expression must not begin with the
  /// call itself (left recursion). Complements and intersections may hold calls of finite automata only.
  [[nodiscard]] Expr call(const CallFacts& facts);
  void define(Expr call, Expr body);
  /// Gives the expressions of calls that are not defined when they are first needed.
  void define_by(std::function<Expr(Expr call)> expand) { scopes_[scope_].expand = std::move(expand); }
  /// The words w of `inner`, each followed by a word of the language that `finish` gives for `number` and w (see
  /// finish_by). Precondition: `inner` does not hold the empty word.
  [[nodiscard]] Expr capture(Expr inner, std::uint32_t number);
  void finish_by(std::function<Expr(std::uint32_t number, const std::string& word)> finish) {
    scopes_[scope_].finish = std::move(finish);
  }

  /// Words that a text may go on with: sorted, none the beginning of another, none empty.
  using Words = std::shared_ptr<const std::vector<std::string>>;
  /// Those of `words` that are `left`, each followed by what `then` gives for its number. Only the tails of words that
  /// are read are asked for, so a choice costs the same for any number of words. Their languages must not be empty.
  [[nodiscard]] Expr choice(Words words, std::vector<bool> left, std::function<Expr(std::uint32_t word)> then);
  /// A choice of which some bytes may have been read.
  struct ChoiceState {
    const Words* words;
    const std::vector<bool>* left;
    std::uint32_t begin, end;  ///< the words that begin with those bytes
    std::uint32_t depth;       ///< how many bytes
  };
  /// Nothing if `expr` is no choice.
  [[nodiscard]] std::optional<ChoiceState> choice_state(Expr expr) const;
  /// What follows a word of a choice.
  [[nodiscard]] Expr chosen(Expr choice, std::uint32_t word);
  /// An expression as `choice` followed by `tail`, or `others`.
  struct ChoiceSplit {
    Expr choice, tail, others;
  };
  /// Precondition: begins_with_choice(expr).
  [[nodiscard]] ChoiceSplit split_choice(Expr expr);
  [[nodiscard]] bool begins_with_choice(Expr expr) const { return nodes_[expr].chooses; }

  /// For front ends, which read the same regular expressions again and again: an expression without calls, by the text
  /// that it was made from. Nothing: none was remembered by it.
  [[nodiscard]] std::optional<Expr> remembered(std::string_view text) const;
  void remember(std::string_view text, Expr expr);

  /// Calls and captures made from now on have their own define_by and finish_by, so several front ends can share a
  /// pool.
  void begin_scope();

  [[nodiscard]] Expr derivative(Expr expr, std::uint8_t byte);
  [[nodiscard]] bool nullable(Expr expr) const { return nodes_[expr].nullable; }       ///< holds the empty word
  [[nodiscard]] std::uint32_t min_bytes(Expr expr) const { return nodes_[expr].min; }  ///< of every word, or less
  /// True if every text of whole characters that JSON strings hold unescaped, at most `bytes` of it, begins a word of
  /// `expr`. May say no where it is true.
  [[nodiscard]] bool is_open(Expr expr, std::uint32_t bytes);
  /// A state inside a JSON string: `min` to `max` more words of `item`, a quote, and `rest`. Of the words of `item`,
  /// those that begin as plain text (see is_open) are the single characters of it, and all of them.
  struct StringState {
    Expr item;
    std::uint32_t min, max;
    Expr rest;
  };
  /// Nothing if `expr` has another form.
  [[nodiscard]] std::optional<StringState> string_state(Expr expr);
  /// True if `expr` has neither intersection nor complement. Such an expression other than kEmpty has a word.
  [[nodiscard]] bool is_plain(Expr expr) const { return nodes_[expr].plain; }
  /// The bytes that words begin with; exact for plain expressions, else a superset.
  [[nodiscard]] const ByteSet& first(Expr expr) const { return sets_[nodes_[expr].first]; }

  /// True if the language has no word. Explores derivatives until it meets a nullable one, and remembers verdicts.
  /// Errors: kMemory if that takes more than the pool's limit.
  [[nodiscard]] bool is_empty(Expr expr);
  /// True if every word of `inner` is a word of `outer`. Errors: those of is_empty.
  [[nodiscard]] bool includes(Expr outer, Expr inner);
  /// The same; false also where it takes too long to tell.
  [[nodiscard]] bool surely_includes(Expr outer, Expr inner);

  /// An expression that allows the same beginnings of at most `bytes` bytes. Every count above `bytes` is replaced by
  /// one just above it or by no bound, so the states of a long counted repeat become one, and whatever comes after
  /// `bytes` bytes by anything. Intersections and complements stay as they are. Precondition: `expr` is not empty.
  [[nodiscard]] Expr within_horizon(Expr expr, std::uint32_t bytes);

  /// The bytes that no expression made so far tells apart have equal numbers, from 0. Derivatives make no new classes.
  struct ByteClasses {
    std::array<std::uint8_t, 256> of{};
    std::vector<std::uint8_t> representative{0};  ///< a byte of each class
  };
  [[nodiscard]] const ByteClasses& byte_classes() const { return classes_; }

  /// Steps are counted from the last begin_work() on. Where there are too many, or calls inside calls, a member throws
  /// Error(kMemory) that says so; the pool is spent, and nothing but making it again is of use.
  void begin_work() { work_ = 0; }
  [[nodiscard]] std::uint64_t work() const { return work_; }
  [[nodiscard]] bool is_spent() const { return work_ > work_max_; }
  void spend(std::uint64_t steps = 1) {
    work_ += steps;
    if (work_ > work_max_) give_up("it takes too many steps to find out what may come next");
  }

  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  friend class Alternation;
  struct Node {
    // kBytes: set; kConcat: head; kNot, kRepeat: argument; kOr, kAnd: first index in args_; kChoice: in choices_
    std::uint32_t a = 0;
    std::uint32_t b = 0;      // kConcat: tail; kRepeat: min; kOr, kAnd: number of arguments; kChoice: first word left
    std::uint32_t c = 0;      // kRepeat: max; kChoice: bytes read
    std::uint32_t first = 0;  // in sets_
    std::uint32_t min = 0;    // bytes of every word
    Op op = Op::kEmpty;
    bool nullable = false, plain = true;
    bool counted = false;  // holds a repeat with a bound other than 0 and 1
    bool finite = true;    // the words have a longest one
    bool captures = false;
    bool chooses = false;  // some alternative begins with a choice
  };
  struct Scope {
    std::function<Expr(Expr)> expand;
    std::function<Expr(std::uint32_t, const std::string&)> finish;
  };
  struct Choice {
    Words words;
    std::vector<bool> left;
    std::function<Expr(std::uint32_t)> then;
    std::uint32_t scope;
  };
  /// A captured text: a shorter one and its last byte, so that all beginnings of a text take little more than the text.
  struct Word {
    std::uint32_t before = 0;
    std::uint8_t byte = 0;
  };
  /// Counts calls inside calls while it lives; the stack has room for some thousands.
  class Nested {
   public:
    explicit Nested(RegularPool& pool) : depth_(pool.nested_) {
      if (depth_ == kNestedMax) pool.give_up("its expressions are nested too deep");
      ++depth_;
    }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ~Nested() { --depth_; }

   private:
    unsigned& depth_;
  };
  static constexpr unsigned kNestedMax = 3000;
  static constexpr unsigned kScopeShift = 20;  // in the number of a capture
  enum class Verdict : std::uint8_t { kUnknown, kEmpty, kInhabited };
  struct Derivative {
    std::uint64_t key = 0;  // the expression and the byte; 0 where none is kept
    Expr result = 0;
  };
  struct SetHash {
    std::size_t operator()(const ByteSet& set) const;
  };

  [[nodiscard]] std::size_t hash_of(const Node& node) const;
  [[nodiscard]] bool same(const Node& l, const Node& r) const;
  void grow_known();
  Derivative& derivative_place(std::uint64_t key);
  std::uint32_t completion(Expr expr);
  [[nodiscard]] std::span<const Expr> args(const Node& node) const { return std::span(args_).subspan(node.a, node.b); }
  std::uint32_t set_number(const ByteSet& set);
  void refine_classes(const ByteSet& set);
  Expr intern(Node node);
  Expr intern(Op op, std::span<const Expr> args);
  Expr concat_pair(Expr head, Expr tail);
  Expr derivative_of(Expr expr, std::uint8_t byte);
  Expr derivative_of_spine(Expr expr, std::uint8_t byte);
  Expr derivative_of_capture(Expr expr, std::uint8_t byte);
  Expr choice_at(std::uint32_t number, std::uint32_t word, std::uint32_t depth);
  Expr derivative_of_choice(Expr expr, std::uint8_t byte);
  Expr finished(std::uint32_t number, std::uint32_t word);
  std::uint32_t longer_word(std::uint32_t word, std::uint8_t byte);
  Expr body(Expr call);
  bool explore_empty(Expr expr);
  Expr find_without_epsilon(Expr expr);
  Expr substitute(Expr expr, const std::array<Expr, 256>& images, std::unordered_map<Expr, Expr>& known);
  bool known_inhabited(Expr expr);
  [[nodiscard]] Verdict verdict(Expr expr) const {
    return expr < verdicts_.size() ? verdicts_[expr] : Verdict::kUnknown;
  }
  bool find_open(Expr expr, std::uint32_t bytes);
  void check_limit() const;
  [[noreturn]] void give_up(const char* why);

  std::vector<Node> nodes_;
  std::vector<Expr> args_;
  std::vector<ByteSet> sets_;
  ByteClasses classes_;
  std::unordered_map<ByteSet, std::uint32_t, SetHash> set_numbers_;
  // Both tables are flat: a long-lived pool must neither rehash nor free hundreds of thousands of entries at once.
  std::vector<Expr> known_;              // by hash_of, then the next free place
  std::vector<Derivative> derivatives_;  // by a hash of the key; a newer one takes the place
  std::size_t derivatives_made_ = 0;     // since the table grew
  std::unordered_map<Expr, std::uint32_t> completions_;
  std::vector<Verdict> verdicts_;
  std::vector<Expr> bodies_;                                       // of calls, kUndefined until they are needed
  std::vector<Word> words_{Word{}};                                // captured so far; the first one is empty
  std::unordered_map<std::uint64_t, std::uint32_t> word_numbers_;  // (word, byte) -> the longer word
  std::size_t finished_bytes_ = 0;                                 // of the words and texts kept for front ends
  std::deque<Choice> choices_;                                     // stay where they are
  std::vector<Scope> scopes_{1};
  std::uint32_t scope_ = 0;  // the current one
  std::unordered_map<Expr, bool> open_, characters_;
  std::unordered_map<std::uint64_t, bool> open_at_;           // (bytes, expr) -> is_open
  std::unordered_map<std::uint64_t, Expr> without_captures_;  // (expr, loose)
  std::unordered_map<Expr, Expr> without_epsilon_;
  std::unordered_map<std::uint64_t, Expr> horizons_;  // (bytes, expr) -> within_horizon
  std::map<std::string, Expr, std::less<>> remembered_;
  std::size_t bytes_max_;
  std::uint64_t work_ = 0, work_max_;
  unsigned nested_ = 0;
  unsigned or_depth_ = 0;  // nested calls of or_, which factor common beginnings
};

}  // namespace forge::text::constraint

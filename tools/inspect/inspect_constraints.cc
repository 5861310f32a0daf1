#include "tools/inspect/inspect_constraints.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <iostream>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <random>
#include <string>

#include "loader/gguf/gguf.h"
#include "support/error.h"
#include "support/json_text.h"
#include "text/constraint/bounded_json.h"
#include "text/constraint/constraint.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::tools {
namespace {

using text::constraint::Constraint;
using text::constraint::ConstraintSource;
using text::constraint::ConstraintSyntax;
using text::constraint::TokenTrie;
using Json = nlohmann::ordered_json;

/// Microseconds by what took them.
class ConstraintTimes {
 public:
  /// `what`: the line that is answered and how many tokens came before, for the longest time.
  template <class Work>
  auto of(std::string_view what, std::size_t tokens, Work work) {
    const double begin = now();
    auto result = work();
    const double time = now() - begin;
    times_.push_back(time);
    if (time > most_) {
      most_ = time;
      most_at_ = fmt::format("{} after {} tokens", what, tokens);
    }
    return result;
  }
  void print(std::string_view what) {
    if (times_.empty()) return;
    std::ranges::sort(times_);
    double sum = 0;
    for (const double time : times_) sum += time;
    const auto at = [&](double share) { return times_[static_cast<std::size_t>(share * double(times_.size() - 1))]; };
    std::cerr << fmt::format(
        "{}: {} times, mean {:.1f} us, median {:.1f}, 95 % {:.1f}, 99 % {:.1f}, most {:.1f} at {}\n", what,
        times_.size(), sum / double(times_.size()), at(0.5), at(0.95), at(0.99), most_, most_at_);
  }

 private:
  /// Of this thread, so that other programs do not count.
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) * 1e6 + double(time.tv_nsec) / 1e3;
  }

  std::vector<double> times_;
  double most_ = 0;
  std::string most_at_;
};

std::optional<ConstraintSource> source_of(const Json& job) {
  for (const auto& [key, syntax] :
       {std::pair("schema", ConstraintSyntax::kJsonSchema), {"calls", ConstraintSyntax::kCalls}})
    if (job.contains(key)) return ConstraintSource{syntax, job[key].dump()};
  for (const auto& [key, syntax] : {std::pair("regex", ConstraintSyntax::kRegex), {"gbnf", ConstraintSyntax::kGbnf}})
    if (job.contains(key) && job[key].is_string()) return ConstraintSource{syntax, job[key].get<std::string>()};
  return std::nullopt;
}

/// Answers the lines of one model.
class ConstraintJobs {
 public:
  explicit ConstraintJobs(const text::Tokenizer& tokenizer)
      : tokenizer_(tokenizer), trie_(std::make_shared<const TokenTrie>(tokenizer)) {}

  std::string answer(const Json& job, const ConstraintSource& source, std::size_t line) {
    line_ = fmt::format("line {} ({:.60})", line, source.text);
    try {
      auto constraint = constraint_of(source);
      const auto text = job.value("text", std::string());
      if (!takes(constraint, text)) return R"({"accepted": false})";
      if (job.contains("seed")) return walk(constraint, text, job["seed"].get<std::uint32_t>());
      return constraint.can_end() ? R"({"accepted": true})" : R"({"accepted": false})";
    } catch (const Error& error) {
      compiled_ = nullptr;
      return fmt::format("{{\"refused\": {}}}", json_string(error.line()));
    }
  }
  void print_times() {
    first_masks_.print("compile and first mask");
    masks_.print("mask");
    accepts_.print("accept");
  }

 private:
  static constexpr std::size_t kWalkTokensMax = 400, kWalkOpenTokens = 60;

  /// Lines of one constraint follow each other, so the last one is kept.
  Constraint constraint_of(const ConstraintSource& source) {
    if (compiled_ && compiled_->source() == source) return Constraint(compiled_);
    compiled_ = nullptr;
    return first_masks_.of(line_, 0, [&] {
      compiled_ = text::constraint::compile(source, trie_);
      Constraint constraint(compiled_);
      (void)constraint.mask();
      return constraint;
    });
  }

  std::span<const std::uint32_t> mask(Constraint& constraint) {
    return masks_.of(line_, constraint.accepted(), [&] { return constraint.mask(); });
  }

  bool accept(Constraint& constraint, std::int32_t token) {
    return accepts_.of(line_, constraint.accepted(), [&] { return constraint.accept(token); });
  }

  bool takes(Constraint& constraint, const std::string& text) {
    const auto ids = trie_->spelled_by(tokenizer_, text);
    if (ids.empty() && !text.empty()) return false;
    for (const auto id : ids) {
      const auto at = static_cast<std::size_t>(id);
      const bool allowed = text::constraint::allows(mask(constraint), at);
      if (accept(constraint, id) != allowed)
        throw Error(ErrorCode::kInternal, fmt::format("the mask and accept() differ on token {}", id));
      if (!allowed) return false;
    }
    return true;
  }

  /// The text, continued by random tokens of the masks to its end.
  std::string walk(Constraint& constraint, std::string text, std::uint32_t seed) {
    std::mt19937 random(seed);
    for (std::size_t step = 0; step < kWalkTokensMax; ++step) {
      std::vector<std::int32_t> allowed, closing;
      const auto words = mask(constraint);
      for (std::size_t i = 0; i < words.size(); ++i)
        for (auto word = words[i]; word != 0; word &= word - 1) {
          const auto id = static_cast<std::int32_t>(i * 32 + static_cast<unsigned>(std::countr_zero(word)));
          allowed.push_back(id);
          if (trie_->bytes(id).find_first_not_of("]}\"") == std::string_view::npos) closing.push_back(id);
        }
      if (allowed.empty()) return fmt::format("{{\"dead end\": {}}}", json_string(text));
      if (step > kWalkOpenTokens && constraint.can_end()) break;
      const auto& from = closing.empty() || (step <= kWalkOpenTokens && random() % 4 != 0) ? allowed : closing;
      const auto id = from[random() % from.size()];
      if (!accept(constraint, id)) throw Error(ErrorCode::kInternal, "a token of the mask is not accepted");
      if (trie_->is_end(id)) return fmt::format("{{\"text\": {}}}", json_string(text));
      text += trie_->bytes(id);
    }
    if (!constraint.can_end()) return R"({"unfinished": true})";
    return fmt::format("{{\"text\": {}}}", json_string(text));
  }

  const text::Tokenizer& tokenizer_;
  std::shared_ptr<const TokenTrie> trie_;
  std::shared_ptr<text::constraint::CompiledConstraint> compiled_;
  std::string line_;  // that is answered
  ConstraintTimes first_masks_, masks_, accepts_;
};

}  // namespace

void inspect_constraints(const std::filesystem::path& model, std::istream& in, std::ostream& out, bool times) {
  const auto gguf = loader::Gguf::open(model);
  const auto tokenizer = text::Tokenizer::open(gguf);
  ConstraintJobs jobs(*tokenizer);
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const auto job = text::parse_bounded<Json>(line, {.depth = 1000, .members = 10'000}, [&](const std::string& why) {
      throw Error(ErrorCode::kUsage, fmt::format("line {} {}", number, why));
    });
    const auto source = job.is_object() ? source_of(job) : std::nullopt;
    const bool has_text = source && job.contains("text"), has_seed = source && job.contains("seed");
    const bool ok = (has_text || has_seed) && (!has_text || job["text"].is_string()) &&
                    (!has_seed || job["seed"].is_number_unsigned());
    if (!ok)
      throw Error(ErrorCode::kUsage, fmt::format("line {} is no constraint with a text", number), {},
                  R"(give {"regex": "...", "text": "..."})");
    out << jobs.answer(job, *source, number) << '\n';
  }
  if (times) jobs.print_times();
}

}  // namespace forge::tools

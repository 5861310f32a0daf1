#pragma once
// Pre-tokenizers by name, for tests of their cuts.

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/pretokenizer/split.h"

namespace forge::tests {

using text::PreTokenizer, text::Regex, text::WordSplitter;
using Pieces = std::vector<std::string>;

inline WordSplitter splitter(std::string_view name, Regex::Engine engine = Regex::Engine::kFastest) {
  const PreTokenizer* pre = text::find_pre_tokenizer(name);
  REQUIRE(pre != nullptr);
  return WordSplitter(*pre, engine);
}

inline Pieces cut(const WordSplitter& words, std::string_view whole) {
  Pieces out;
  words.split(whole, [&](std::string_view word) { out.emplace_back(word); });
  return out;
}

inline Pieces cut_by_name(std::string_view name, std::string_view whole) {
  return cut(splitter(name), whole);
}

inline std::string joined(const Pieces& pieces, std::string_view separator) {
  std::string out;
  for (const auto& piece : pieces) out.append(out.empty() ? "" : separator).append(piece);
  return out;
}

/// One name for each list of expressions.
inline std::vector<std::string_view> distinct_names() {
  std::vector<std::string_view> names;
  std::set<const void*> seen;
  for (const auto& row : text::pre_tokenizers())
    if (seen.insert(row.expressions.data()).second) names.push_back(row.name);
  return names;
}

}  // namespace forge::tests

// Tokenizers against the libraries that define them: vocabularies trained by those libraries, and their own results on
// thousands of random strings. tests/text/tokenizers has the files, a hash of the ids for every 250 strings, and the
// recipe of the strings. make_tokenizers.py writes that folder; FORGE_TOKENIZERS names another one.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/skip.h"
#include "tests/text/splitmix.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/string_table.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

using namespace forge;
using Ids = std::vector<std::int32_t>;

namespace {

constexpr std::size_t kBlock = 250;

/// Strings to repeat or a range of code points to draw from; up to `most` of them at once.
struct Pool {
  std::uint64_t most = 1;
  std::vector<std::string> texts;
  std::uint64_t first = 0, last = 0;
};

/// The same string generator as in make_tokenizers.py.
class Strings {
 public:
  Strings(const std::vector<Pool>& pools, std::uint64_t seed) : pools_(pools), random_(seed) {}

  std::string next() {
    std::string out;
    for (auto pieces = random_.below(16); pieces > 0; --pieces) {
      const Pool& pool = pools_[random_.below(pools_.size())];
      for (auto count = 1 + random_.below(pool.most); count > 0; --count) {
        if (!pool.texts.empty()) {
          out += pool.texts[random_.below(pool.texts.size())];
          continue;
        }
        const auto code = static_cast<std::uint32_t>(pool.first + random_.below(pool.last - pool.first + 1));
        text::append_utf8(out, code >= 0xD800 && code < 0xE000 ? '?' : code);
      }
    }
    return out;
  }

 private:
  const std::vector<Pool>& pools_;
  tests::SplitMix random_;
};

/// FNV-1a over ids; each list ends with -1. The same as in make_tokenizers.py.
struct Digest {
  std::uint64_t value = 0xCBF29CE484222325U;
  void add(const Ids& ids) {
    for (const auto id : ids) add(id);
    add(-1);
  }
  void add(std::int32_t id) { value = (value ^ static_cast<std::uint32_t>(id)) * 0x100000001B3U; }
};

struct VocabCase {
  std::string file, pre;
  bool special = false;
  std::vector<std::uint64_t> digests;
};

struct Cases {
  std::size_t count = 0;
  std::uint64_t seed = 0;
  std::vector<Pool> pools;
  std::vector<VocabCase> all;
};

std::string text_of_hex(const std::string& hex) {
  std::string text;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    text += static_cast<char>(std::stoul(hex.substr(i, 2), nullptr, 16));
  return text;
}

Cases read_cases(const std::string& path) {
  std::ifstream in(path);
  Cases cases;
  for (std::string line, word; std::getline(in, line);) {
    std::istringstream words(line);
    words >> word;
    if (word == "strings") {
      words >> cases.count >> cases.seed;
    } else if (word == "texts" || word == "range") {
      Pool pool;
      words >> pool.most;
      if (word == "range")
        words >> pool.first >> pool.last;
      else
        while (words >> word) pool.texts.push_back(text_of_hex(word));
      cases.pools.push_back(std::move(pool));
    } else if (word == "case") {
      VocabCase one;
      words >> one.file >> one.pre >> word;
      one.special = word == "special";
      while (words >> word) one.digests.push_back(std::stoull(word, nullptr, 16));
      cases.all.push_back(std::move(one));
    }
  }
  return cases;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The byte-level vocabulary in `file` with another pre-tokenizer name.
std::string with_pre(const std::string& file, const std::string& pre) {
  const auto gguf = loader::Gguf::from(std::as_bytes(std::span(file)));
  tests::GgufWriter w("none");
  w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", pre);
  for (const auto key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    const text::StringList list(*gguf.find_value(key), key);
    std::vector<std::string> texts;
    for (std::uint32_t i = 0; i < list.size(); ++i) texts.emplace_back(list[i]);
    w.add(key, texts);
  }
  const auto* types = gguf.find_value("tokenizer.ggml.token_type");
  std::vector<std::int32_t> numbers;
  for (std::uint64_t i = 0; i < types->count; ++i)
    numbers.push_back(static_cast<std::int32_t>(*types->element_at(i).to_i64()));
  return w.add("tokenizer.ggml.token_type", numbers).bytes();
}

std::string folder() {
  const char* chosen = std::getenv("FORGE_TOKENIZERS");
  return chosen != nullptr ? chosen : FORGE_TOKENIZERS_DIR;
}

}  // namespace

TEST_CASE("random strings get the ids that the vocabularies' own libraries give them", "[vocab]") {
  const auto cases = read_cases(folder() + "/cases.txt");
  REQUIRE(cases.all.size() >= 14);
  REQUIRE(cases.count >= 1000);
  for (const auto& one : cases.all) {
    INFO(one.file << " " << one.pre);
    std::string file = bytes_of(folder() + "/" + one.file + ".gguf");
    if (one.pre != "-") file = with_pre(file, one.pre);
    const auto gguf = loader::Gguf::from(std::as_bytes(std::span(file)));
    const auto tokenizer = text::Tokenizer::open(gguf);
    CHECK(tokenizer->warnings().empty());
    REQUIRE(one.digests.size() == (cases.count + kBlock - 1) / kBlock);
    Strings strings(cases.pools, cases.seed);
    std::size_t wrong = 0;
    for (std::size_t block = 0; block < one.digests.size(); ++block) {
      Digest digest;
      for (std::size_t i = block * kBlock; i < std::min(cases.count, (block + 1) * kBlock); ++i)
        digest.add(tokenizer->encode(strings.next(), {.parse_special = one.special}));
      wrong += digest.value != one.digests[block] ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("vocabularies with all bytes decode every string to itself", "[vocab]") {
  const auto cases = read_cases(folder() + "/cases.txt");
  std::size_t looked_at = 0;
  for (const auto& one : cases.all) {
    if (!one.file.starts_with("bpe") && one.file != "spm") continue;
    ++looked_at;
    INFO(one.file << " " << one.pre);
    std::string file = bytes_of(folder() + "/" + one.file + ".gguf");
    if (one.pre != "-") file = with_pre(file, one.pre);
    const auto gguf = loader::Gguf::from(std::as_bytes(std::span(file)));
    const auto tokenizer = text::Tokenizer::open(gguf);
    Strings strings(cases.pools, cases.seed + 1);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
      const std::string text = strings.next();
      wrong += !text.empty() && tokenizer->decode(tokenizer->encode(text), true) != text ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
  CHECK(looked_at >= 10);
}

TEST_CASE("a real model's vocabulary decodes text to itself", "[vocab]") {
  const char* model = std::getenv("FORGE_TEST_MODEL");
  if (model == nullptr) {
    tests::skip_case("$FORGE_TEST_MODEL names no model");
    return;
  }
  const auto gguf = loader::Gguf::open(model);
  const auto tokenizer = text::Tokenizer::open(gguf);
  // Some byte-level vocabularies lack bytes that hardly occur in text.
  const bool byte_level = gguf.get<std::string>("tokenizer.ggml.model", "") == "gpt2";
  std::set<std::string_view> known;
  for (std::int32_t id = 0; id < tokenizer->vocab_size(); ++id) known.insert(tokenizer->token_text(id));
  const auto has_bytes = [&](const std::string& text) {
    return !byte_level || std::ranges::all_of(text, [&](char byte) {
      std::string token;
      text::append_printable_bytes(token, {&byte, 1});
      return known.contains(token);
    });
  };
  const auto cases = read_cases(folder() + "/cases.txt");
  Strings strings(cases.pools, 3);
  std::size_t looked_at = 0;
  for (std::size_t i = 0; i < 2000; ++i) {
    const std::string text = strings.next();
    if (!has_bytes(text)) continue;
    ++looked_at;
    REQUIRE(tokenizer->decode(tokenizer->encode(text), true) == text);
  }
  CHECK(looked_at > 500);
}

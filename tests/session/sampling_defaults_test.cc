// Sampling parameters that a model file recommends: which keys are read, and which values are ignored with a warning.

#include "session/sampling_defaults.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "loader/gguf/gguf.h"
#include "tests/support/gguf_writer.h"

using namespace forge;
using loader::Gguf;
using session::SamplingDefaults;
using tests::GgufWriter;

namespace {

SamplingDefaults read(const GgufWriter& writer) {
  const auto bytes = writer.bytes();
  return session::read_sampling_defaults(Gguf::from(std::as_bytes(std::span(bytes))));
}

/// The warning about the key `name` with `value`, which must be ignored.
template <class T>
std::string ignored(const std::string& name, const T& value) {
  const auto out = read(GgufWriter("llama").add("general.sampling." + name, value));
  CHECK_FALSE((out.temperature || out.top_k || out.top_p || out.min_p || out.repeat_penalty || out.penalty_window));
  REQUIRE(out.ignored.size() == 1);
  return out.ignored.front();
}

}  // namespace

TEST_CASE("every key that the sampler supports is read, from any type that can hold it") {
  GgufWriter w("llama");
  w.add("general.sampling.temp", 0.5F).add("general.sampling.top_k", 20).add("general.sampling.top_p", 0.8);
  w.add("general.sampling.min_p", 0).add("general.sampling.penalty_repeat", 1.25F);
  w.add("general.sampling.penalty_last_n", std::int64_t{32});
  const auto out = read(w);
  CHECK(out.temperature == 0.5F);
  CHECK(out.top_k == 20);
  CHECK(out.top_p == 0.8F);
  CHECK(out.min_p == 0.0F);
  CHECK(out.repeat_penalty == 1.25F);
  CHECK(out.penalty_window == 32);
  CHECK(out.ignored.empty());
}

TEST_CASE("a file without keys sets no defaults") {
  const auto out = read(GgufWriter("llama").add("general.sampling", 3).add("general.name", "x"));
  CHECK_FALSE((out.temperature || out.top_k || out.top_p || out.min_p || out.repeat_penalty || out.penalty_window));
  CHECK(out.ignored.empty());
}

TEST_CASE("-1 means no top-k, and 20.0 is read as 20") {
  CHECK(read(GgufWriter("llama").add("general.sampling.top_k", -1)).top_k == 0);
  CHECK(read(GgufWriter("llama").add("general.sampling.top_k", 20.0F)).top_k == 20);
}

TEST_CASE("an invalid value is ignored, with a line that names it and its key") {
  CHECK(ignored("temp", -1.0F) == "general.sampling.temp is f32 -1; it must be a number from 0 to 100");
  CHECK_THAT(ignored("temp", std::numeric_limits<float>::quiet_NaN()), Catch::Contains("temp is f32 nan"));
  CHECK_THAT(ignored("temp", std::numeric_limits<double>::infinity()), Catch::Contains("temp is f64 inf"));
  CHECK_THAT(ignored("temp", "0.8"), Catch::Contains("temp is string '0.8'"));
  CHECK_THAT(ignored("temp", true), Catch::Contains("temp is bool true"));
  CHECK_THAT(ignored("top_p", std::vector<float>{0.5F}), Catch::Contains("top_p is array"));
  CHECK_THAT(ignored("top_p", 1.5F), Catch::EndsWith("from 0 to 1"));
  CHECK_THAT(ignored("min_p", -0.5F), Catch::Contains("min_p is f32 -0.5"));
  CHECK_THAT(ignored("top_k", 2.5F), Catch::Contains("top_k is f32 2.5; it must be a whole number"));
  CHECK_THAT(ignored("top_k", -2), Catch::Contains("top_k is i32 -2"));
  CHECK_THAT(ignored("top_k", std::uint64_t{1} << 31), Catch::Contains("top_k is u64 2147483648"));
  CHECK_THAT(ignored("penalty_repeat", 0.0F), Catch::Contains("from 0.01 to 100"));
  CHECK_THAT(ignored("penalty_last_n", -1), Catch::Contains("penalty_last_n is i32 -1"));
}

TEST_CASE("an unsupported setting gives a line, with control characters of its name escaped") {
  CHECK(ignored("mirostat", 2) == "general.sampling.mirostat is i32 2; forge has no such setting");
  CHECK_THAT(ignored("\033[1m", 1), Catch::Contains("\\x1b[1m"));
}

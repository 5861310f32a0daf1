// forge-bench: which cases it measures, statistics, output formats, synthetic models, and the comparison of two result
// files.

#include "tools/bench/bench.h"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/quant/rows.h"
#include "loader/arch/family.h"
#include "session/synthetic/synthetic_model.h"
#include "support/error.h"
#include "tests/support/temp_dir.h"
#include "tools/bench/bench_compare.h"
#include "tools/bench/read_rate.h"
#include "tools/bench/statistics.h"
#include "tools/cli/records.h"

namespace forge::tools {
namespace {

/// The error line of the usage error that `body` throws; empty if it throws none.
template <class Body>
std::string usage_error(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.line().find('\n') == std::string::npos);
    return error.exit_status() == 2 ? error.line() : std::string();
  }
  return {};
}

std::string row_text(const char* more, const char* model = "/m/x.gguf") {
  return std::string(R"({"model_filename": ")") + model + R"(", "n_threads": 2, "n_prompt": 0, "n_gen": 8, )" + more +
         "}";
}

std::vector<MeasuredTest> read(const std::string& text) {
  const tests::TempDir folder;
  return read_results(folder.write("a.json", text));
}

}  // namespace

TEST_CASE("the rows of a benchmark and their statistics") {
  BenchRequest request;
  request.prompt = {512, 0};
  request.predict = {128};
  request.depth = {0, 2048};
  request.threads = {1, 2};
  const auto cases = bench_cases(request);
  REQUIRE(cases.size() == 8);
  CHECK(cases[0].prompt == 512);
  CHECK(cases[1].predict == 128);
  CHECK(cases[2].depth == 2048);
  CHECK(cases[4].threads == 2);
  BenchResult result{.what = {.predict = 10, .batch = 3}, .seconds = {0.5, 1.0, 1.5}};
  summarise(result);
  CHECK(result.rate == Approx((60.0 + 30.0 + 20.0) / 3));
  CHECK(result.rate_deviation == Approx(20.8167).epsilon(1e-4));
  CHECK(result.rate_median == Approx(30.0));
  const auto row = BenchWriter(RecordFormat::kJson).row(result);
  CHECK(row.find("\"n_gen\": 10") != std::string::npos);
  CHECK(row.find("\"n_parallel\": 3") != std::string::npos);
  CHECK(row.find("\"samples_ts\": [60, 30, 20]") != std::string::npos);
  CHECK(row.find("\"median_ns\": 1000000000") != std::string::npos);
  CHECK(BenchWriter(RecordFormat::kMarkdown).row(result).find("tg10") != std::string::npos);
  CHECK(!usage_error([] { (void)record_format("xml"); }).empty());
}

TEST_CASE("the median of an even count is the mean of the middle two, in any input order") {
  CHECK(summary_of(std::array{4.0, 1.0, 3.0, 2.0}).median == 2.5);
  CHECK(summary_of(std::array{9.0, 1.0, 3.0}).median == 3.0);
  const auto one = summary_of(std::array{7.0});
  CHECK((one.mean == 7 && one.median == 7 && one.deviation == 0));
  CHECK(summary_of({}).mean == 0);
}

TEST_CASE("results of CPUs and GPUs have the same field names") {  // a table's header is written before its first row
  const auto names = [](const std::string& target) {
    BenchResult result;
    result.target = target;
    std::vector<std::string> out;
    for (const auto& [name, value] : bench_record(result)) out.emplace_back(name);
    return out;
  };
  CHECK(names("cpu-x86-64-v3") == names(""));
  CHECK(names("gfx1100") == names(""));
  CHECK(names("sm_90") == names(""));
}

TEST_CASE("the back-end fields of a result come from the program's facts") {
  BenchResult result;
  result.target = "some-target";
  result.device = "some device";
  const auto field = [&](std::string_view wanted) {
    for (const auto& [name, value] : bench_record(result))
      if (name == wanted) return std::get<std::string>(value);
    return std::string("missing");
  };
  result.api = "CPU";
  result.on_host = true;
  CHECK((field("backends") == "CPU" && field("cpu_info") == "some-target" && field("gpu_info").empty()));
  result.api = "HIP";
  result.on_host = false;
  CHECK((field("backends") == "HIP" && field("cpu_info").empty() && field("gpu_info") == "some device"));
}

TEST_CASE("records in every format: quotes, lists, NaN and infinite numbers") {
  const Record record{{"name", std::string("a \"b\", 'c'")},
                      {"count", std::int64_t{3}},
                      {"rate", 0.5},
                      {"none", std::numeric_limits<double>::quiet_NaN()},
                      {"list", std::vector<double>{1, 2.5}}};
  const auto all = [&](RecordFormat format) {
    RecordWriter writer(format, "t");
    auto text = writer.begin(record);
    text += writer.row(record);
    text += writer.row(record);
    return text + writer.end();
  };
  CHECK(all(RecordFormat::kCsv) ==
        "name,count,rate,none\n\"a \"\"b\"\", 'c'\",3,0.500000,\n\"a \"\"b\"\", 'c'\",3,0.500000,\n");
  const std::string line = R"({"name": "a \"b\", 'c'", "count": 3, "rate": 0.5, "none": null, "list": [1, 2.5]})";
  CHECK(all(RecordFormat::kJsonLines) == line + "\n" + line + "\n");
  const std::string insert = "INSERT INTO t (name, count, rate, none) VALUES ('a \"b\", ''c''', 3, 0.500000, NULL);\n";
  CHECK(all(RecordFormat::kSql) ==
        "CREATE TABLE IF NOT EXISTS t (\n  name TEXT,\n  count INTEGER,\n  rate REAL,\n  none REAL\n);\n\n" + insert +
            insert);
  const auto json = all(RecordFormat::kJson);
  CHECK(json.starts_with("[\n  {\n    \"name\": "));
  CHECK(json.find("\n  },\n  {\n") != std::string::npos);
  CHECK(json.ends_with("\n  }\n]\n"));
}

TEST_CASE("a table's cells are aligned, and a bar in a name does not end its cell") {
  const std::array columns{MarkdownColumn{"name", 6, true}, MarkdownColumn{"n", 3}};
  CHECK(markdown_head(columns) == "| name   |   n |\n| ------ | --: |\n");
  CHECK(markdown_row(columns, std::array<std::string, 2>{"a|b", "7"}) == "| a\\|b   |   7 |\n");
}

TEST_CASE("results are read from lists and lines; the median of the samples counts, and the fastest of equal tests") {
  const auto list = read("[" + row_text(R"("avg_ts": 9, "samples_ts": [1, 5, 3])") + "]");
  REQUIRE(list.size() == 1);
  CHECK(list[0].rate == 3);
  CHECK(list[0].model == "x.gguf");
  CHECK((list[0].predict == 8 && list[0].threads == 2 && list[0].depth == 0 && list[0].batch == 1));
  const auto lines = read(row_text(R"("avg_ts": 9, "n_depth": 4)") + "\n\n" + row_text(R"("avg_ts": 7)") + "\n" +
                          row_text(R"("avg_ts": 8)") + "\n");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].depth == 4);
  CHECK(lines[1].rate == 8);
  CHECK(read(row_text(R"("avg_ts": 9)")).size() == 1);  // a single line is an object
}

TEST_CASE("an invalid result file is refused in one line with the reason") {
  const auto refused = [](const std::string& text, const std::string& word) {
    const auto line = usage_error([&] { (void)read(text); });
    CHECK(line.find("a.json holds no benchmark results") != std::string::npos);
    CHECK(line.find(word) != std::string::npos);
  };
  refused("", "its list is empty");
  refused("[]", "its list is empty");
  refused("hello\n", "neither");
  refused("[1]", "row 1 is not an object");
  refused("7", "neither");
  refused(std::string(100000, '['), "neither");
  refused("[" + row_text(R"("avg_ts": 1)") + ", {}]", "row 2 has no valid n_prompt");
  refused(row_text(R"("avg_ts": 1, "n_prompt": -1)"), "n_prompt");
  refused(row_text(R"("avg_ts": 1, "n_gen": 0)"), "n_prompt and n_gen");
  refused(row_text(R"("avg_ts": 1, "n_gen": 1.5)"), "n_prompt and n_gen");
  refused(row_text(R"("avg_ts": 1, "n_gen": 18446744073709551615)"), "n_prompt and n_gen");
  refused(row_text(R"("avg_ts": 1, "n_depth": "deep")"), "n_depth");
  refused(row_text(R"("avg_ts": 1, "n_parallel": 0)"), "n_parallel");
  refused(row_text(R"("avg_ts": 0)"), "avg_ts");
  refused(row_text(R"("avg_ts": "fast")"), "avg_ts");
  refused(row_text(R"("avg_ts": 1, "samples_ts": [1, null])"), "samples_ts");
  refused(std::string((4 << 20) + 1, ' '), "larger");
}

TEST_CASE("two result files are compared test by test") {
  const MeasuredTest prompt{.model = "x", .prompt = 512, .threads = 2, .rate = 300};
  MeasuredTest deep{.model = "x", .predict = 8, .depth = 64, .threads = 2, .rate = 50}, other = prompt;
  other.model = "y";  // the only model of its file, so names need not match
  other.rate = 100;
  const auto rows = compare({prompt, deep}, {other});
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].ratio() == 3);
  CHECK(rows[1].a == 50);
  CHECK(rows[1].ratio() == 0);
  deep.model = "z";  // two models in the first file, so names must match
  const auto apart = compare({prompt, deep}, {other});
  REQUIRE(apart.size() == 3);
  CHECK(apart[0].ratio() == 0);
  CHECK(apart[2].b == 100);

  const tests::TempDir folder;
  const auto a = folder.write("new.json", row_text(R"("avg_ts": 9)")),
             b = folder.write("old.json", row_text(R"("avg_ts": 6)"));
  const auto c = folder.write("c.json", row_text(R"("avg_ts": 6, "n_depth": 1)"));
  const auto table = compare_files(a, b, RecordFormat::kMarkdown);
  CHECK(table.find("| new        |") == std::string::npos);
  CHECK(table.find("|        new |        old |   ratio |") != std::string::npos);
  CHECK(table.find("|       9.00 |       6.00 |   1.500 |") != std::string::npos);
  CHECK(compare_files(a, b, RecordFormat::kJsonLines).find("\"ratio\": 1.5") != std::string::npos);
  CHECK(usage_error([&] { (void)compare_files(a, c, RecordFormat::kCsv); }).find("no test in common") !=
        std::string::npos);
}

TEST_CASE("the share of the read rate counts the weights that steps read") {
  BenchResult result{.what = {.predict = 10, .batch = 2},
                     .seconds = {0.5, 1, 2},
                     .weight_bytes = 3'000'000,
                     .read_rates = {90e6, 120e6, 60e6}};
  summarise(result);
  CHECK(result.read_rate() == 90e6);
  CHECK(result.read_share() == Approx(10 * 3e6 / 90e6));  // ten steps per second, of two tokens each
  CHECK(BenchWriter(RecordFormat::kMarkdown, true).row(result).find("| 33% of 0.1 |") == std::string::npos);
  CHECK(BenchWriter(RecordFormat::kMarkdown, true).row(result).find("33% of 0.1 |") != std::string::npos);
  CHECK(BenchWriter(RecordFormat::kMarkdown).row(result).find("33%") == std::string::npos);
  result.read_rates.clear();
  CHECK(result.read_share() == 0);
  CHECK(BenchWriter(RecordFormat::kJson).row(result).find("\"read_share\": null") != std::string::npos);
}

TEST_CASE("the read-rate benchmark reads every word once per pass") {
  for (const std::size_t threads : {1U, 3U}) {
    constexpr std::uint64_t kWords = (std::uint64_t{2} << 20) / 8;  // per task
    ReadRate reading(threads, std::size_t{5} << 20);                // two tasks; the rest is left out
    CHECK(reading.measure() > 0);
    CHECK(reading.sum() == 2 * (kWords * (kWords - 1) / 2));
    CHECK(reading.median(2) > 0);
  }
}

TEST_CASE("a synthetic model is valid and deterministic") {
  std::string first;
  const auto model = session::SyntheticModel::parse("tiny:q4_1");
  write_synthetic(model, [&](std::span<const std::byte> piece) {
    first.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  std::size_t at = 0;
  bool same = true;
  write_synthetic(model, [&](std::span<const std::byte> piece) {
    same = same && std::memcmp(first.data() + at, piece.data(), piece.size()) == 0;
    at += piece.size();
  });
  CHECK(same);
  CHECK(at == first.size());

  const auto file = loader::Gguf::from(std::as_bytes(std::span(first)));
  CHECK(file.get<std::string>("general.name", {}) == "random tiny:q4_1");
  CHECK(file.tensor("blk.3.ffn_down.weight").describe() == "'blk.3.ffn_down.weight' q4_1 [1024, 512]");
  CHECK(file.tensor("token_embd.weight").dtype == DType::kQ8_0);  // as in q4_1 files of real models
  const auto portable = loader::build_model(file);
  CHECK(portable.info.layers == 4);
  CHECK(portable.info.vocab == 32000);

  std::vector<float> row(512);
  const auto& gate = file.tensor("blk.0.ffn_gate.weight");
  REQUIRE(quant::dequantize_native(gate.dtype, gate.data.data(), row.size(), row.data()));
  double squares = 0;
  for (const float value : row) squares += value * value;
  CHECK(std::sqrt(squares / 512) == Approx(0.02).epsilon(0.2));

  std::uint64_t bytes = 0;
  for (const auto& tensor : file.tensors()) bytes += tensor.bytes();
  CHECK(bytes == model.weight_bytes());
  const session::SyntheticFile in_memory(model);
  CHECK(loader::Gguf::open(in_memory.path()).identity() == file.identity());
}

TEST_CASE("random weights of every type have about the standard deviation and mean of trained ones") {
  constexpr std::size_t kElems = 8192;
  for (const auto& row : kDTypes) {
    if (!quant::has_kernels(row.type)) {
      CHECK_FALSE(session::SyntheticPool::make(row.type, row.block_elems));
      continue;
    }
    CAPTURE(row.name);
    const auto pool = session::SyntheticPool::make(row.type, kElems);
    REQUIRE(pool);
    session::Random from;
    std::vector<std::byte> bytes;
    pool->write(row_bytes(row.type, kElems), from,
                [&](std::span<const std::byte> piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
    REQUIRE(bytes.size() == row_bytes(row.type, kElems));
    std::vector<float> values(kElems);
    REQUIRE(quant::dequantize_native(row.type, bytes.data(), kElems, values.data()));
    double sum = 0, squares = 0;
    for (const float value : values) {
      sum += double{value};
      squares += double{value} * double{value};
    }
    CHECK(std::sqrt(squares / kElems) == Approx(0.02).epsilon(0.35));  // wide, because MXFP4's scales are powers of two
    CHECK(std::abs(sum / kElems) < 0.003);
  }
}

TEST_CASE("the built-in shapes have the sizes of their models") {
  const auto bytes = [](const char* name) { return session::SyntheticModel::parse(name).weight_bytes(); };
  // As published: 1,235,814,400 and 134,515,008 weights. Norms are f32; the 1b model has 32 RoPE factors in addition.
  constexpr std::uint64_t kNorms1b = 33 * 2048, kNormsSmollm2 = 61 * 576;
  CHECK(bytes("1b:q8_0") == (1'235'814'400 - kNorms1b) / 32 * 34 + 4 * kNorms1b + 4 * 32);
  CHECK(bytes("smollm2:bf16") == 2 * (134'515'008 - kNormsSmollm2) + 4 * kNormsSmollm2);
}

TEST_CASE("an unknown synthetic model is refused with the list of known ones") {
  const auto line = [](const char* text) { return usage_error([&] { (void)session::SyntheticModel::parse(text); }); };
  CHECK(line("1b").find("shapes are smollm2, 1b, 8b, tiny; types are f32, f16,") != std::string::npos);
  CHECK(line("2b:q4_0").find("shapes are") != std::string::npos);
  for (const auto* type : {"1b:", "1b:q9", "1b:i32", "1b:q8a_32", "1b:q8a_16", "1b:q16a_16", "1b:state", "1b:q4_0:"})
    CHECK(line(type).find("types are") != std::string::npos);
}

}  // namespace forge::tools

// Reading valid GGUF files: values of every type, typed look-ups, tensors, the file identity, and the mapping.

#include "loader/gguf/gguf.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "support/error.h"
#include "tests/support/error_of.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"

using namespace forge;
using loader::Gguf;
using tests::GgufWriter;

namespace {

Gguf parse(const std::string& bytes) {
  return Gguf::from(std::as_bytes(std::span(bytes)));
}

using tests::error_of;

GgufWriter all_types() {
  GgufWriter w("llama");
  w.add("u8", std::uint8_t{200}).add("i8", std::int8_t{-3}).add("u16", std::uint16_t{60000});
  w.add("i16", std::int16_t{-300}).add("u32", 4000000000U).add("i32", -70000).add("f32", 1.5F).add("bool", true);
  w.add("u64", std::uint64_t{1} << 60).add("i64", std::int64_t{-1} << 60).add("f64", 0.1);
  w.add("text", "a\0b").add("texts", {"", "one", "zwei"}).add("ints", std::vector<std::int32_t>{1, 2, 3});
  w.add("floats", std::vector<float>{0.5F, -1}).add("none", std::vector<std::uint32_t>{});
  return w;
}

}  // namespace

TEST_CASE("scalars of every type are read") {
  const std::string bytes = all_types().bytes();
  const Gguf gguf = parse(bytes);
  CHECK(gguf.files().front().version == 3);
  CHECK(gguf.metadata().size() == 17);
  CHECK(gguf.require<std::uint8_t>("u8") == 200);
  CHECK(gguf.require<std::int8_t>("i8") == -3);
  CHECK(gguf.require<std::uint16_t>("u16") == 60000);
  CHECK(gguf.require<std::int16_t>("i16") == -300);
  CHECK(gguf.require<std::uint32_t>("u32") == 4000000000U);
  CHECK(gguf.require<std::int32_t>("i32") == -70000);
  CHECK(gguf.require<float>("f32") == 1.5F);
  CHECK(gguf.require<bool>("bool"));
  CHECK(gguf.require<std::uint64_t>("u64") == std::uint64_t{1} << 60);
  CHECK(gguf.require<std::int64_t>("i64") == std::int64_t{-1} << 60);
  CHECK(gguf.require<double>("f64") == 0.1);
  CHECK(gguf.require<std::string_view>("general.architecture") == "llama");
  CHECK(gguf.require<std::string>("text") == "a");
}

TEST_CASE("integers convert between widths if the value fits, and only then") {
  const std::string bytes = all_types().bytes();
  const Gguf gguf = parse(bytes);
  CHECK(gguf.require<std::uint64_t>("u8") == 200);
  CHECK(gguf.require<std::int64_t>("u32") == 4000000000);
  CHECK(gguf.require<double>("i32") == -70000.0);
  CHECK(gguf.require<float>("f64") == 0.1F);
  CHECK(error_of([&] { (void)gguf.require<std::uint32_t>("i32"); }) ==
        "error[model-format]: metadata key 'i32' holds i32 -70000: a u32 integer is expected; convert the model again "
        "with a current converter");
  CHECK(error_of([&] { (void)gguf.require<std::int8_t>("u8"); }).find("holds u8 200") != std::string::npos);
  CHECK_FALSE(error_of([&] { (void)gguf.require<std::uint32_t>("u64"); }).empty());
  CHECK_FALSE(error_of([&] { (void)gguf.require<std::int64_t>("f32"); }).empty());
  CHECK_FALSE(error_of([&] { (void)gguf.require<std::int32_t>("bool"); }).empty());
  CHECK_FALSE(error_of([&] { (void)gguf.require<bool>("u8"); }).empty());
  CHECK_FALSE(error_of([&] { (void)gguf.require<std::string>("u8"); }).empty());
  CHECK(error_of([&] { (void)gguf.require<std::uint32_t>("text"); }).find("string 'a'") != std::string::npos);
  CHECK(error_of([&] { (void)gguf.require<std::uint32_t>("ints"); }).find("array of 3 i32s") != std::string::npos);
  CHECK_FALSE(error_of([&] { (void)gguf.require<loader::GgufStrings>("ints"); }).empty());
}

TEST_CASE("a missing key gives nullopt, the fallback, or an error that names the key") {
  const std::string bytes = all_types().bytes();
  const Gguf gguf = parse(bytes);
  CHECK_FALSE(gguf.find<int>("absent"));
  CHECK(gguf.get<float>("absent", 2.0F) == 2.0F);
  CHECK(gguf.get<float>("f32", 2.0F) == 1.5F);
  CHECK(error_of([&] { (void)gguf.require<std::uint32_t>("absent"); }).find("'absent' is missing") !=
        std::string::npos);
}

TEST_CASE("arrays: strings in place, converted numbers, per-layer values broadcast") {
  const std::string bytes = all_types().bytes();
  const Gguf gguf = parse(bytes);
  CHECK(gguf.require<loader::GgufStrings>("texts").index() == std::vector<std::string_view>{"", "one", "zwei"});
  CHECK(gguf.require<loader::GgufStrings>("none").empty());
  CHECK(gguf.require<std::vector<std::uint64_t>>("ints") == std::vector<std::uint64_t>{1, 2, 3});
  CHECK(gguf.require<std::vector<float>>("floats") == std::vector<float>{0.5F, -1});
  CHECK(gguf.find_per_layer<std::uint32_t>("ints", 2) == std::vector<std::uint32_t>{1, 2});
  CHECK(gguf.find_per_layer<std::uint32_t>("u8", 3) == std::vector<std::uint32_t>{200, 200, 200});
  CHECK_FALSE(gguf.find_per_layer<std::uint32_t>("absent", 3));
  CHECK(error_of([&] { (void)gguf.find_per_layer<std::uint32_t>("ints", 4); }).find("4 of them") != std::string::npos);
}

TEST_CASE("nested arrays are read") {
  const auto u8s = [](std::initializer_list<std::uint8_t> values) {
    std::string out = GgufWriter::raw(std::uint32_t{0}) + GgufWriter::raw(std::uint64_t{values.size()});
    for (const auto v : values) out += static_cast<char>(v);
    return out;
  };
  GgufWriter w("x");
  w.entry("nested", GgufWriter::kArray,
          GgufWriter::raw(GgufWriter::kArray) + GgufWriter::raw(std::uint64_t{2}) + u8s({1, 2}) + u8s({7}));
  w.add("after", 5);
  const std::string bytes = w.bytes();
  const Gguf gguf = parse(bytes);
  const auto rows = gguf.find_value("nested")->elements();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].count == 2);
  CHECK(rows[1].elements().at(0).to_u64() == 7U);
  CHECK(gguf.require<int>("after") == 5);
}

TEST_CASE("tensors: dims innermost first, data in place, any alignment") {
  for (const std::uint32_t alignment : {8U, 32U, 4096U}) {
    std::vector<float> values(6);
    std::iota(values.begin(), values.end(), 0.0F);
    GgufWriter w("llama");
    w.alignment = alignment;
    w.add_f32("a", {3, 2}, values);
    const std::vector<std::byte> blocks(2 * 34);
    w.add_tensor("b", {32, 1, 2}, DType::kQ8_0, blocks);
    const std::string bytes = w.bytes();
    const Gguf gguf = parse(bytes);
    CHECK(gguf.files().front().alignment == alignment);
    const auto& a = gguf.tensor("a");
    CHECK(a.describe() == "'a' f32 [3, 2]");
    CHECK((a.cols() == 3 && a.rows() == 2 && a.elems() == 6 && a.bytes() == 24));
    CHECK(a.offset % alignment == 0);
    CHECK(std::memcmp(a.data.data(), values.data(), 24) == 0);
    CHECK(a.data.data() == gguf.files().front().bytes.data() + a.offset);
    CHECK(gguf.tensor("b").rows() == 2);
    CHECK(gguf.tensor("b").rank == 3);
    CHECK(gguf.find_tensor("c") == nullptr);
    CHECK(error_of([&] { (void)gguf.tensor("c"); }).find("tensor 'c' is missing") != std::string::npos);
  }
}

TEST_CASE("every type that GGUF files use has a name and a size") {
  for (const auto& row : kDTypes) {
    GgufWriter w("llama");
    w.add_tensor("t", {row.block_elems}, row.type, std::vector<std::byte>(row.block_bytes));
    const std::string bytes = w.bytes();
    if (static_cast<int>(row.type) >= static_cast<int>(DType::kQ8A_32)) {  // forge's own
      CHECK(error_of([&] { (void)parse(bytes); }).find("type") != std::string::npos);
      continue;
    }
    const Gguf gguf = parse(bytes);
    CHECK(gguf.tensor("t").dtype == row.type);
    CHECK(gguf.tensor("t").bytes() == row.block_bytes);
  }
}

TEST_CASE("version 2 is read like version 3") {
  GgufWriter w("llama");
  w.version = 2;
  const std::string bytes = w.add("n", 1).bytes();
  CHECK(parse(bytes).files().front().version == 2);
}

TEST_CASE("the identity covers metadata and tensor table, not the weights") {
  const auto make = [](int layers, std::string_view name, float weight) {
    GgufWriter w("llama");
    w.add("llama.block_count", layers).add_f32(name, {2}, std::vector<float>{weight, 1});
    return w.bytes();
  };
  const auto identity = [](const std::string& bytes) { return parse(bytes).identity(); };
  const auto base = identity(make(1, "t", 1));
  CHECK(base == identity(make(1, "t", 2)));
  CHECK(base != identity(make(2, "t", 1)));
  CHECK(base != identity(make(1, "u", 1)));
  CHECK(base.hex().size() == 32);
}

TEST_CASE("a file is mapped, verified, and stays mapped when the object is moved") {
  const tests::TempDir dir;
  const std::string bytes = all_types().bytes();
  const auto path = dir.write("m.gguf", bytes);
  Gguf first = Gguf::open(path);
  const auto text = first.require<std::string_view>("general.architecture");
  const Gguf second = std::move(first);
  CHECK(text.data() == second.require<std::string_view>("general.architecture").data());
  CHECK(second.bytes() == bytes.size());
  CHECK(second.path() == path);
  for (const std::size_t offset : {std::size_t{0}, std::size_t{5}, bytes.size(), SIZE_MAX})
    second.files().front().mapping.prefetch(offset, SIZE_MAX);
  CHECK(text == "llama");
}

TEST_CASE("files that cannot be mapped are refused, each with its reason") {
  const tests::TempDir dir;
  const auto refusal = [&](const std::filesystem::path& path) { return error_of([&] { (void)Gguf::open(path); }); };
  CHECK(refusal(dir.file("missing")).find("No such file") != std::string::npos);
  CHECK(refusal(dir.path()).find("it is a directory") != std::string::npos);
  CHECK(refusal(dir.write("empty", "")).find("the file is empty") != std::string::npos);
  CHECK(refusal("/dev/null").find("not a regular file") != std::string::npos);
  const auto locked = dir.write("locked", all_types().bytes());
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  if (::geteuid() != 0) CHECK(refusal(locked).find("Permission denied") != std::string::npos);
}

// Models split into several files: opened by any part, read as one model, and refused with the name of the part that
// does not belong to the others.

#include "loader/gguf/split.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "tests/support/error_of.h"
#include "tests/support/split_gguf.h"

using namespace forge;
using loader::Gguf;
using loader::GgufImage;
using loader::PartName;
using tests::error_of;
using tests::GgufWriter;
using tests::part_name;

namespace {

/// A model of eight tensors: a table, a norm, and a matrix of each of two roles in three layers.
std::string whole_file(DType type = DType::kQ8_0) {
  GgufWriter w("llama");
  w.add("general.name", "tiny").add("llama.block_count", 3U).add("texts", {"", "one"}).add("flags", std::vector{1, 2});
  const auto matrix = [&](const char* name, char fill) {
    w.add_tensor(name, {256, 2}, type, std::vector<std::byte>(2 * row_bytes(type, 256), std::byte(fill)));
  };
  w.add_tensor("table", {256}, DType::kQ6_K, std::vector<std::byte>(row_bytes(DType::kQ6_K, 256)));
  matrix("blk.0.attn_q.weight", 'a');
  matrix("blk.0.ffn_up.weight", 'b');
  w.add_f32("norm", {3}, std::vector<float>{1, 2, 3});
  matrix("blk.1.attn_q.weight", 'c');
  matrix("blk.1.ffn_up.weight", 'd');
  matrix("blk.2.attn_q.weight", 'e');
  matrix("blk.2.ffn_up.weight", 'f');
  return w.bytes();
}

using Parts = std::vector<std::string>;

/// The table alone, then a layer a part.
Parts four_parts(DType type = DType::kQ8_0) {
  return tests::split_gguf(whole_file(type), {1, 2, 3, 2});
}

Gguf joined(const Parts& parts) {
  std::vector<GgufImage> images;
  for (const auto& part : parts)
    images.push_back({part_name(images.size() + 1, parts.size()), std::as_bytes(std::span(part))});
  return Gguf::from(images);
}

/// A part made by hand: split keys, what `add` writes, and a tensor of one float.
std::string part_of(
    std::size_t index, std::size_t count, std::size_t tensors, std::string_view tensor,
    const std::function<void(GgufWriter&)>& add = [](GgufWriter&) {}) {
  GgufWriter w;
  if (index == 0) w.add("general.architecture", "llama").add("general.alignment", 32U);
  tests::add_split_keys(w, index, count, tensors);
  add(w);
  return w.add_f32(tensor, {1}, std::vector<float>{1}).bytes();
}

/// The error's line for parts in memory, and for a file.
std::string refusal(const Parts& parts) {
  return error_of([&] { (void)joined(parts); }, ErrorCode::kModelFormat);
}
std::string refusal(const std::filesystem::path& path) {
  return error_of([&] { (void)Gguf::open(path); }, ErrorCode::kModelFormat);
}

}  // namespace

TEST_CASE("names of parts are read and written") {
  const auto name = PartName::parse("a-b-00002-of-00013.gguf");
  REQUIRE(name);
  CHECK((name->prefix == "a-b" && name->number == 2 && name->count == 13));
  CHECK(name->text() == "a-b-00002-of-00013.gguf");
  CHECK(PartName::parse("-00001-of-65535.gguf")->prefix.empty());
  for (const auto* other :
       {"", "m.gguf", "m-00002-of-00013", "m-0002-of-00013.gguf", "m-00002-of-000013.gguf", "m-00002-OF-00013.gguf",
        "m00002-of-00013.gguf", "m-+0002-of-00013.gguf", "m-00002-of-0001x.gguf", "00002-of-00013.gguf", ".gguf"})
    CHECK_FALSE(PartName::parse(other));
}

TEST_CASE("a split model is opened by the name of any part, and is the whole one") {
  const auto bytes = whole_file();
  const auto whole = Gguf::from(std::as_bytes(std::span(bytes)));
  // A first part without tensors has the metadata alone.
  const auto counts = GENERATE(std::vector<std::size_t>{1, 2, 5}, std::vector<std::size_t>{0, 7, 1},
                               std::vector<std::size_t>{4, 4}, std::vector<std::size_t>(8, 1));
  const tests::TempDir dir;
  const auto parts = tests::split_gguf(bytes, counts);
  const auto first = tests::write_parts(dir, parts);
  for (std::size_t number = 1; number <= parts.size(); ++number) {
    const auto model = Gguf::open(dir.file(part_name(number, parts.size())));
    CHECK((model.is_split() && model.files().size() == parts.size()));
    CHECK((model.path() == first && model.stem() == "m"));
    CHECK(model.identity() == joined(parts).identity());
    CHECK(model.require<std::string>("general.name") == "tiny");
    CHECK(model.require<loader::GgufStrings>("texts").index() == std::vector<std::string_view>{"", "one"});
    CHECK(model.metadata().size() == whole.metadata().size() + 3);
    REQUIRE(model.tensors().size() == whole.tensors().size());
    std::size_t next = 0;
    std::uint64_t sum = 0;
    for (std::uint32_t file = 0; file < parts.size(); ++file) {
      const auto& own = model.files()[file];
      sum += own.bytes.size();
      for (std::size_t i = 0; i < counts[file]; ++i) {
        const auto &tensor = model.tensors()[next], &expected = whole.tensors()[next];
        CHECK((tensor.name == expected.name && tensor.dtype == expected.dtype && tensor.dims == expected.dims));
        CHECK(std::ranges::equal(tensor.data, expected.data));
        CHECK(tensor.file == file);
        CHECK(tensor.data.data() == own.bytes.data() + tensor.offset);
        CHECK(tensor.describe() == expected.describe() + " in " + own.name);
        CHECK(&model.tensor(tensor.name) == &tensor);
        ++next;
      }
    }
    CHECK(model.bytes() == sum);
  }
}

TEST_CASE("the identity and the stamp of a split model are of all its files") {
  const tests::TempDir dir;
  auto parts = four_parts();
  const auto path = tests::write_parts(dir, parts);
  const auto before = Gguf::open(path);
  const auto stamp = before.stamp();
  parts[2] += 'x';  // behind the weights, which the identity leaves out
  (void)dir.write(part_name(3, 4), parts[2]);
  const auto after = Gguf::open(path);
  CHECK(after.identity() == before.identity());
  CHECK(after.stamp() != stamp);
  parts[2].replace(parts[2].find("blk.1.ffn_up"), 12, "blk.1.ffn_ab");
  CHECK(joined(parts).identity() != before.identity());
  CHECK(joined(tests::split_gguf(whole_file(), {1, 2, 2, 3})).identity() != before.identity());
  CHECK(joined({part_of(0, 1, 1, "t")}).identity() == joined({part_of(0, 1, 1, "t")}).files()[0].identity());
}

TEST_CASE("a missing or renamed part is named") {
  const tests::TempDir dir;
  const auto parts = four_parts();
  const auto path = tests::write_parts(dir, parts);
  std::filesystem::remove(dir.file(part_name(3, 4)));
  for (const std::size_t number : {1U, 2U, 4U})
    CHECK_THAT(refusal(dir.file(part_name(number, 4))),
               Catch::Contains("reading " + dir.file(part_name(number, 4)).native() +
                               ": m-00003-of-00004.gguf is missing: the model has 4 parts"));
  CHECK(error_of([&] { (void)Gguf::open(dir.file(part_name(3, 4))); }, ErrorCode::kIo).find("No such file") !=
        std::string::npos);
  std::filesystem::create_symlink("nowhere", dir.file(part_name(3, 4)));
  CHECK_THAT(refusal(path), Catch::Contains("m-00003-of-00004.gguf is missing"));
  std::filesystem::remove(dir.file(part_name(3, 4)));
  // Links to files under other names are parts, as in caches of downloads.
  const auto blob = dir.write("blob", parts[2]);
  std::filesystem::create_symlink("blob", dir.file(part_name(3, 4)));
  CHECK(Gguf::open(path).files().size() == 4);
  CHECK_THAT(refusal(blob), Catch::Contains("reading " + blob.native() +
                                            ": it is part 3 of 4 of a model: its name does not end in "
                                            "-00003-of-00004.gguf"));
  for (const auto* name : {"m-00002-of-00003.gguf", "m-00001-of-00005.gguf"})
    CHECK_THAT(refusal(dir.write(name, parts[1])),
               Catch::Contains(name) && Catch::Contains("does not end in -00002-of-00004.gguf"));
  (void)dir.write(part_name(2, 4), parts[1].substr(0, 100));
  CHECK_THAT(refusal(path), Catch::Contains("reading " + dir.file(part_name(2, 4)).native() + ": the file ends"));
}

TEST_CASE("a part that does not belong to the others is named") {
  struct Case {
    std::string says;
    std::function<void(Parts&)> change;
  };
  const auto other = [](std::size_t index, DType type) {
    return [=](Parts& parts) { parts[index] = four_parts(type)[index]; };
  };
  const Case cases[] = {
      {"m-00003-of-00004.gguf is part 2 of 4: part 3 of 4 is expected", [](auto& p) { p[2] = p[1]; }},
      {"m-00001-of-00004.gguf is part 2 of 4: part 1 of 4 is expected", [](auto& p) { std::swap(p[0], p[1]); }},
      {"m-00002-of-00004.gguf is part 2 of 3", [](auto& p) { p[1] = part_of(1, 3, 8, "t"); }},
      {"m-00002-of-00004.gguf is part 2 of 65535", [](auto& p) { p[1] = part_of(1, 65535, 8, "t"); }},
      {"m-00002-of-00004.gguf is part 65536 of 4", [](auto& p) { p[1] = part_of(65535, 4, 8, "t"); }},
      {"m-00002-of-00004.gguf is a whole model", [](auto& p) { p[1] = whole_file(); }},
      {"m-00002-of-00004.gguf is a whole model", [](auto& p) { p[1] = part_of(1, 0, 8, "t"); }},
      {"m-00001-of-00004.gguf is a whole model", [](auto& p) { p[0] = whole_file(); }},
      {"m-00004-of-00004.gguf is a part of another model than m-00001-of-00004.gguf: split.tensors.count is 9, and 8",
       [](auto& p) { p[3] = part_of(3, 4, 9, "t"); }},
      {"m-00004-of-00004.gguf holds tensor 'norm': m-00003-of-00004.gguf holds it too",
       [](auto& p) { p[3] = part_of(3, 4, 8, "norm"); }},
      {"m-00001-of-00004.gguf and its other parts have 7 tensors: split.tensors.count is 8",
       [](auto& p) { p[3] = part_of(3, 4, 8, "t"); }},
      {"m-00003-of-00004.gguf is quantised differently from the other parts: it has weights of type q4_0",
       other(2, DType::kQ4_0)},
      {"m-00002-of-00004.gguf is quantised differently", other(1, DType::kF16)},
  };
  for (const auto& [says, change] : cases) {
    auto parts = four_parts();
    (void)joined(parts);
    change(parts);
    INFO(says);
    CHECK_THAT(refusal(parts), Catch::Contains("reading m-0000") && Catch::Contains(says));
  }
}

TEST_CASE("metadata of a further part may repeat the first file's, and not contradict them") {
  const auto with = [](const std::function<void(GgufWriter&)>& add) {
    return Parts{part_of(0, 2, 2, "a"), part_of(1, 2, 2, "b", add)};
  };
  CHECK(joined(with([](auto& w) { w.add("general.architecture", "llama"); })).tensors().size() == 2);
  const auto refused = [&](const std::function<void(GgufWriter&)>& add, const char* says) {
    CHECK_THAT(refusal(with(add)),
               Catch::Contains("m-00002-of-00002.gguf contradicts m-00001-of-00002.gguf") && Catch::Contains(says));
  };
  refused([](auto& w) { w.add("general.architecture", "qwen3"); },
          "metadata key 'general.architecture' is string 'qwen3', and string 'llama' there");
  refused([](auto& w) { w.add("general.architecture", 5U); }, "is u32 5, and string 'llama' there");
  refused([](auto& w) { w.add("llama.block_count", 5U); }, "'llama.block_count' is u32 5, and missing there");
}

TEST_CASE("keys of a part that are missing or cannot be are refused") {
  const auto second = [](const std::function<void(GgufWriter&)>& add) {
    GgufWriter w;
    add(w);
    return Parts{part_of(0, 2, 2, "a"), w.add_f32("b", {1}, std::vector<float>{1}).bytes()};
  };
  CHECK_THAT(refusal(second([](auto& w) { w.add("split.count", 2U); })),
             Catch::Contains("reading m-00002-of-00002.gguf: metadata key 'split.no' is missing"));
  CHECK_THAT(refusal(second([](auto& w) { w.add("split.count", 2U).add("split.no", 1U); })),
             Catch::Contains("'split.tensors.count' is missing"));
  CHECK_THAT(refusal(second([](auto& w) { w.add("split.count", "2"); })),
             Catch::Contains("'split.count' holds string"));
  CHECK_THAT(refusal(second([](auto& w) { w.add("split.count", 2U).add("split.no", -1); })),
             Catch::Contains("'split.no' holds i32 -1"));
  CHECK_THAT(refusal(second([](auto& w) { w.add("split.count", 70000U); })),
             Catch::Contains("'split.count' holds u32 70000"));
  CHECK_THAT(
      refusal(second([](auto& w) { w.add("split.count", 2U).add("split.no", 1U).add("split.tensors.count", -1); })),
      Catch::Contains("'split.tensors.count' holds i32 -1"));
}

TEST_CASE("a whole model may have the keys of a split one") {
  const tests::TempDir dir;
  const auto one = Gguf::open(dir.write("any.gguf", part_of(0, 1, 1, "t")));
  CHECK((!one.is_split() && one.tensors().size() == 1 && one.stem() == "any"));
  CHECK(one.tensors()[0].describe() == "'t' f32 [1]");
  CHECK(Gguf::open(dir.write("m-00001-of-00001.gguf", part_of(0, 1, 1, "t"))).stem() == "m");
  // Joined again: the other keys still say what was.
  CHECK(Gguf::open(dir.write("joined.gguf", part_of(2, 0, 9, "t"))).tensors().size() == 1);
  CHECK_THAT(refusal(Parts{part_of(1, 1, 1, "t")}), Catch::Contains("is part 2 of 1: part 1 of 1 is expected"));
  CHECK_THAT(refusal(Parts{part_of(0, 1, 2, "t")}), Catch::Contains("has 1 tensors: split.tensors.count is 2"));
  CHECK_THAT(refusal(Parts{part_of(0, 3, 1, "t")}), Catch::Contains("is part 1 of 3: part 1 of 1 is expected"));
  CHECK_THAT(refusal(dir.write("three.gguf", part_of(0, 3, 1, "t"))), Catch::Contains("three.gguf"));
  CHECK_THAT(refusal(dir.write("m-00001-of-65535.gguf", part_of(0, 65535, 1, "t"))),
             Catch::Contains("m-00002-of-65535.gguf is missing"));
}

TEST_CASE("parts of a model of mixed types are accepted") {
  // A part with one tensor whose type no other has, and parts that share a type in different roles.
  CHECK(joined(tests::split_gguf(whole_file(), {1, 7})).files().size() == 2);
  for (const auto type : {DType::kF32, DType::kQ6_K}) CHECK(joined({four_parts(type)}).files().size() == 4);
}

#include "text/constraint/call_language.h"

#include <fmt/core.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/error.h"
#include "text/constraint/bounded_json.h"
#include "text/constraint/code_ranges.h"
#include "text/constraint/schema/schema.h"

namespace forge::text::constraint {
namespace {

using nlohmann::json;

constexpr int kPieceDepthMax = 64;
constexpr std::uint32_t kIdLength = 9, kKeyLengthMax = 64;

class CallLanguage {
 public:
  CallLanguage(RegularPool& pool, const std::function<Expr(std::string_view)>& schema) : pool_(pool), schema_(schema) {}

  Expr sequence(const json& pieces, int depth) {
    if (!pieces.is_array() || depth > kPieceDepthMax) refuse();
    Expr out = RegularPool::kEpsilon;
    // From the end: a concatenation is a list whose rest is shared.
    for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) out = pool_.concat(one(*piece, depth), out);
    return out;
  }

 private:
  [[noreturn]] static void refuse() { throw Error(ErrorCode::kUsage, "the pieces of a call have another form"); }

  Expr one(const json& piece, int depth) {
    if (piece.is_string()) return pool_.literal(piece.get_ref<const std::string&>());
    if (!piece.is_object() || piece.size() != 1) refuse();
    const auto item = piece.begin();
    const std::string& kind = item.key();
    const json& value = item.value();
    if (kind == "choice" && value.is_array()) {
      std::vector<Expr> parts;
      for (const auto& part : value) parts.push_back(sequence(part, depth + 1));
      return pool_.or_(parts);
    }
    if (kind == "optional") return pool_.or_({RegularPool::kEpsilon, sequence(value, depth + 1)});
    if (kind == "repeat") return pool_.star(sequence(value, depth + 1));
    if (kind == "schema" && value.is_string()) return schema_(value.get_ref<const std::string&>());
    if (kind == "until" && value.is_string()) return without(value.get_ref<const std::string&>());
    if (kind == "id") return pool_.repeat(utf8_of(pool_, {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}), kIdLength, kIdLength);
    if (kind == "index") return pool_.repeat(utf8_of(pool_, {{'0', '9'}}), 1, 4);
    if (kind == "key")
      return pool_.repeat(utf8_of(pool_, {{'-', '.'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}), 1,
                          kKeyLengthMax);
    refuse();
  }

  /// Any text that does not have `part` in it.
  Expr without(std::string_view part) {
    const Expr any = pool_.star(any_character(pool_));
    if (part.empty()) return any;
    const Expr has = pool_.concat(RegularPool::kAll, pool_.concat(pool_.literal(part), RegularPool::kAll));
    return pool_.and_({any, pool_.not_(has)});
  }

  RegularPool& pool_;
  const std::function<Expr(std::string_view)>& schema_;
};

}  // namespace

Expr call_language(RegularPool& pool, std::string_view pieces, const std::function<Expr(std::string_view)>& schema) {
  const auto list = parse_bounded<json>(pieces, {.depth = kPieceDepthMax * 4}, [](const std::string& why) {
    throw Error(ErrorCode::kUsage, fmt::format("the text of a call's pieces {}", why));
  });
  return CallLanguage(pool, schema).sequence(list, 0);
}

Language compile_calls(RegularPool& pool, std::string_view pieces) {
  auto owners = std::make_shared<std::vector<std::shared_ptr<void>>>();
  std::map<std::string, Expr, std::less<>> known;  // tools are listed for the first call and for further ones
  Language out;
  out.start = call_language(pool, pieces, [&](std::string_view schema) {
    if (const auto found = known.find(schema); found != known.end()) return found->second;
    pool.begin_scope();
    auto language = compile_schema(pool, schema);
    owners->push_back(std::move(language.owner));
    return known.emplace(schema, language.start).first->second;
  });
  out.owner = std::move(owners);
  return out;
}

}  // namespace forge::text::constraint

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
  CallLanguage(RegularPool& pool, const ValueLanguages& values) : pool_(pool), values_(values) {}

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
    if (piece.is_object() && piece.contains("value")) return tagged(piece);
    if (piece.is_object() && piece.size() == 2 && piece.contains("schema"))
      return values_.json(text_of(piece, "schema"), text_of(piece, "at"));
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
    if (kind == "schema" && value.is_string()) return values_.json(value.get_ref<const std::string&>(), {});
    if (kind == "until" && value.is_string()) return without(value.get_ref<const std::string&>());
    if (kind == "id") return pool_.repeat(utf8_of(pool_, {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}), kIdLength, kIdLength);
    if (kind == "index") return pool_.repeat(utf8_of(pool_, {{'0', '9'}}), 1, 4);
    if (kind == "key")
      return pool_.repeat(utf8_of(pool_, {{'-', '.'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}), 1,
                          kKeyLengthMax);
    refuse();
  }

  static std::string_view text_of(const json& piece, const char* key) {
    const auto found = piece.find(key);
    if (found == piece.end() || !found->is_string()) refuse();
    return found->get_ref<const std::string&>();
  }

  Expr tagged(const json& piece) {
    TaggedValue value;
    value.schema = text_of(piece, "value");
    value.at = text_of(piece, "at");
    value.until = text_of(piece, "until");
    const auto types = piece.find("types");
    if (piece.size() != 4 || types == piece.end() || !types->is_array()) refuse();
    for (const auto& type : *types) {
      if (!type.is_string()) refuse();
      value.types.push_back(type.get<std::string>());
    }
    return values_.tagged(value);
  }

  /// Any text that does not have `part` in it.
  Expr without(std::string_view part) {
    const Expr any = pool_.star(any_character(pool_));
    if (part.empty()) return any;
    return pool_.and_({any, pool_.not_(pool_.containing(part))});
  }

  RegularPool& pool_;
  const ValueLanguages& values_;
};

}  // namespace

Expr call_language(RegularPool& pool, std::string_view pieces, const ValueLanguages& values) {
  const auto list = parse_bounded<json>(pieces, {.depth = kPieceDepthMax * 4}, [](const std::string& why) {
    throw Error(ErrorCode::kUsage, fmt::format("the text of a call's pieces {}", why));
  });
  return CallLanguage(pool, values).sequence(list, 0);
}

Language compile_calls(RegularPool& pool, std::string_view pieces) {
  auto owners = std::make_shared<std::vector<std::shared_ptr<void>>>();
  std::map<std::string, Expr, std::less<>> known;  // tools are listed for the first call and for further ones
  const auto once = [&](std::string key, const auto& make) {
    if (const auto found = known.find(key); found != known.end()) return found->second;
    pool.begin_scope();
    auto language = make();
    owners->push_back(std::move(language.owner));
    return known.emplace(std::move(key), language.start).first->second;
  };
  Language out;
  out.start = call_language(pool, pieces,
                            {.json =
                                 [&](std::string_view schema, std::string_view at) {
                                   return once(std::string(at) + '\n' + std::string(schema),
                                               [&] { return compile_schema(pool, schema, at); });
                                 },
                             .tagged =
                                 [&](const TaggedValue& value) {
                                   const auto key = json{value.at, value.until, value.types, value.schema}.dump();
                                   return once(key, [&] { return compile_tagged_value(pool, value); });
                                 }});
  out.owner = std::move(owners);
  return out;
}

}  // namespace forge::text::constraint

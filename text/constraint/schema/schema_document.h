#pragma once
// A JSON schema's text: its subschemas with their places, identifiers and drafts, and what references point to.

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

#include "text/constraint/bounded_json.h"

namespace forge::text::constraint {

/// In the order of the text, which is that of an answer's members.
using SchemaJson = nlohmann::ordered_json;

enum class SchemaDraft : std::uint8_t { k4, k6, k7, k2019, k2020 };

/// Limits of a schema's text, of its nesting (of all values, as they are copied and compared recursively), and of the
/// members of one object.
inline constexpr std::size_t kSchemaBytesMax = std::size_t{2} << 20;
inline constexpr JsonLimits kSchemaLimits{.depth = 200, .members = 4096};

/// Errors of all members: kUsage, one line with the path of the keyword.
class SchemaDocument {
 public:
  explicit SchemaDocument(std::string_view text);

  [[nodiscard]] const SchemaJson& root() const { return root_; }
  /// Keeps a schema that was made from parts of another and counts as standing in its place.
  const SchemaJson& keep(SchemaJson made, const SchemaJson& place);
  [[nodiscard]] SchemaDraft draft(const SchemaJson& schema) const { return facts_.at(&schema).draft; }
  /// True if some schema has unevaluatedProperties or unevaluatedItems.
  [[nodiscard]] bool tracks_evaluated() const { return tracks_evaluated_; }
  [[nodiscard]] bool has_dynamic_scope() const { return dynamic_anchors_ > 1; }

  /// The schema that `reference`, which stands in `schema`, points to.
  const SchemaJson& resolve(const SchemaJson& schema, const std::string& keyword, const std::string& reference);
  /// Where a keyword of a schema stands: "#/properties/x/pattern".
  [[nodiscard]] std::string path(const SchemaJson& schema, std::string_view keyword) const;
  [[noreturn]] void refuse(const SchemaJson& schema, std::string_view keyword, const std::string& why) const;

 private:
  struct Facts {
    const SchemaJson* parent = nullptr;
    std::string key;  // below the parent, as in a JSON pointer
    std::string base;
    SchemaDraft draft = SchemaDraft::k2020;
  };
  void enter(const SchemaJson& schema, Facts facts, unsigned depth);
  void enter_parts(const SchemaJson& schema, const Facts& facts, unsigned depth);
  const SchemaJson& pointed(const SchemaJson& from, std::string_view pointer, const SchemaJson& schema,
                            const std::string& keyword);

  SchemaJson root_;
  std::deque<SchemaJson> made_;
  std::unordered_map<const SchemaJson*, Facts> facts_;
  std::map<std::string, const SchemaJson*, std::less<>> identified_;  // by URI, or by URI#anchor
  bool tracks_evaluated_ = false;
  unsigned dynamic_anchors_ = 0;
};

}  // namespace forge::text::constraint

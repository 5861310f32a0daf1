#pragma once
// The normal form of JSON schemas: what a value of each JSON type must satisfy.
//
// Values without structure (null, booleans, numbers, strings) are regular languages, which are closed under
// intersection and complement. Objects and arrays are alternatives ("cases"), each a conjunction of rules about their
// members. So every combination (allOf, anyOf, oneOf, not, if) becomes intersections, unions and complements of normal
// forms; what a member must satisfy stays a set of schemas, which is brought to its normal form when it is needed, so
// schemas may recurse.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/constraint/regex_syntax.h"
#include "text/constraint/schema/json_language.h"
#include "text/constraint/schema/schema_document.h"

namespace forge::text::constraint {

/// A schema, or the complement of one, by number.
using SchemaRef = std::uint32_t;
inline constexpr SchemaRef kAnyValue = 0, kNoValue = 1;
/// A set of schemas that a value must satisfy, by number.
using SchemaSet = std::uint32_t;

/// Which schema the value of a property must satisfy.
struct PropertyRule {
  std::map<std::string, SchemaRef, std::less<>> names;
  std::vector<std::pair<Expr, SchemaRef>> patterns;  ///< by the decoded name
  SchemaRef others = kAnyValue;                      ///< of names in neither
};

/// Some property whose decoded name is in `names` must have a value that satisfies `value`.
struct WantedProperty {
  Expr names = RegularPool::kEmpty;
  SchemaRef value = kAnyValue;
  friend bool operator==(const WantedProperty&, const WantedProperty&) = default;
};

struct ObjectCase {
  std::vector<std::shared_ptr<const PropertyRule>> rules;  ///< all of them apply
  std::set<std::string> required;
  std::uint32_t min = 0, max = kUnbounded;
  std::vector<WantedProperty> wanted;
  Expr evaluated = RegularPool::kEmpty;  ///< decoded names that are not left for unevaluatedProperties
};

struct ItemRule {
  std::vector<SchemaRef> prefix;
  SchemaRef others = kAnyValue;
};
struct ContainedItems {
  SchemaRef value = kAnyValue;
  std::uint32_t min = 1, max = kUnbounded;
  friend bool operator==(const ContainedItems&, const ContainedItems&) = default;
};

struct ArrayCase {
  std::vector<std::shared_ptr<const ItemRule>> rules;
  std::uint32_t min = 0, max = kUnbounded;
  std::vector<ContainedItems> contains;
  bool unique = false;
  const SchemaJson* unique_at = nullptr;  ///< where uniqueItems stands
  std::uint32_t evaluated = 0;            ///< items from the first on that are not left for unevaluatedItems
  std::vector<SchemaRef> evaluated_by;    ///< nor are items that satisfy one of these
};

struct NormalSchema {
  bool null = false, yes = false, no = false;
  Expr numbers = RegularPool::kEmpty;  ///< in JsonLanguage's spelling
  Expr texts = RegularPool::kEmpty;    ///< decoded
  std::vector<ObjectCase> objects;
  std::vector<ArrayCase> arrays;
  /// Names in properties and in required, by number, in the order of the schemas' texts. All cases share it.
  std::vector<std::uint32_t> declared, listed;
};

/// Errors of all members: kUsage with the keyword's path; kMemory.
class SchemaNormalizer {
 public:
  SchemaNormalizer(SchemaDocument& document, JsonLanguage& json);

  [[nodiscard]] JsonLanguage& json() { return json_; }
  [[nodiscard]] RegularPool& pool() { return json_.pool(); }
  [[nodiscard]] SchemaDocument& document() { return document_; }

  [[nodiscard]] SchemaRef ref(const SchemaJson& schema);
  [[nodiscard]] SchemaRef complement(SchemaRef ref);
  [[nodiscard]] SchemaRef intersection(std::vector<SchemaRef> refs);
  [[nodiscard]] SchemaSet set(std::vector<SchemaRef> refs);
  [[nodiscard]] SchemaSet with(SchemaSet set, SchemaRef more);
  /// The normal form of a set. The reference is valid as long as this object.
  const NormalSchema& normal(SchemaSet set);
  /// False only if no value satisfies the set.
  bool inhabited(SchemaSet set);

  /// Refuses a document that no value satisfies, and names what is to blame as far as that is known.
  [[noreturn]] void refuse_empty();

  [[nodiscard]] SchemaSet property(const ObjectCase& object, std::string_view name);
  [[nodiscard]] SchemaSet item(const ArrayCase& array, std::size_t index);
  [[nodiscard]] static std::size_t prefix_size(const ArrayCase& array);
  [[nodiscard]] std::set<std::string> names(const ObjectCase& object) const;
  /// The place of each name that has one: declared properties as the schemas have them, then other required ones.
  using Places = std::map<std::string_view, std::uint32_t>;
  [[nodiscard]] Places places(const NormalSchema& normal) const;
  /// What names outside of names() must satisfy: disjoint decoded languages.
  [[nodiscard]] std::vector<std::pair<Expr, SchemaSet>> other_names(const ObjectCase& object);
  [[nodiscard]] bool matches(Expr language, std::string_view text);

 private:
  struct Unknown {};  // thrown while inhabited() looks into a schema whose normal form is being made
  struct Source {
    const SchemaJson* schema = nullptr;
    SchemaRef complement_of = kAnyValue;  // if schema is null
    SchemaSet all_of = UINT32_MAX;        // if it is a set's normal form instead
    SchemaRef complement = UINT32_MAX;
    bool open = false;
    std::unique_ptr<NormalSchema> normal;
  };

  // Algebra (schema_normal.cc). `place` and `keyword` are for refusals.
  struct Place {
    const SchemaJson* schema;
    std::string_view keyword;
  };
  NormalSchema anything();
  NormalSchema both(const NormalSchema& a, const NormalSchema& b, Place place);
  static void add_order(NormalSchema& sum, const NormalSchema& more);
  static void add_scalars(NormalSchema& sum, const NormalSchema& more, RegularPool& pool);
  NormalSchema either(NormalSchema a, const NormalSchema& b, Place place);
  NormalSchema without(const NormalSchema& a, Place place);
  std::vector<ObjectCase> without(const ObjectCase& object, Place place);
  std::vector<ArrayCase> without(const ArrayCase& array, Place place);
  std::optional<ObjectCase> both(const ObjectCase& a, const ObjectCase& b);
  std::optional<ArrayCase> both(const ArrayCase& a, const ArrayCase& b);
  bool inhabited(const ObjectCase& object);
  bool inhabited(const ArrayCase& array);
  void prune(NormalSchema& normal, Place place);
  bool proven_empty(const NormalSchema& normal);
  bool can_tell(const std::function<void()>& work);
  void spend(std::size_t work, Place place);

  // Keywords (schema_keywords.cc, schema_applicators.cc).
  const NormalSchema& normal_of(SchemaRef ref);
  NormalSchema made(const SchemaJson& schema);
  NormalSchema typed(const SchemaJson& schema);
  NormalSchema constant(const SchemaJson& value, const SchemaJson& place);
  NormalSchema enumerated(const SchemaJson& values, const SchemaJson& place);
  void add_numbers(const SchemaJson& schema, NormalSchema& normal);
  void add_texts(const SchemaJson& schema, NormalSchema& normal);
  void add_object(const SchemaJson& schema, NormalSchema& normal);
  void add_array(const SchemaJson& schema, NormalSchema& normal);
  void add_all(const SchemaJson& schema, NormalSchema& normal);
  void add_any(const SchemaJson& schema, NormalSchema& normal);
  void add_one(const SchemaJson& schema, NormalSchema& normal);
  void add_not_and_if(const SchemaJson& schema, NormalSchema& normal);
  void add_dependencies(const SchemaJson& schema, NormalSchema& normal);
  void add_references(const SchemaJson& schema, NormalSchema& normal);
  void add_unevaluated(const SchemaJson& schema, NormalSchema& normal);
  NormalSchema absent(const std::string& name);
  NormalSchema present(const std::set<std::string>& names);
  const NormalSchema& sub(const SchemaJson& schema, const SchemaJson& part, std::string_view keyword);
  const SchemaJson& list_of(const SchemaJson& schema, const char* keyword);
  std::optional<std::uint32_t> count(const SchemaJson& schema, const char* keyword);
  std::uint32_t name_number(const std::string& name);
  Expr pattern(const SchemaJson& schema, const std::string& keyword, const std::string& expression,
               RegexDialects dialects = RegexDialects::kBoth);
  Expr disputed_names(const SchemaJson& schema, const std::string& expression);

  SchemaDocument& document_;
  JsonLanguage& json_;
  std::vector<Source> sources_;
  std::unordered_map<const SchemaJson*, SchemaRef> refs_;
  std::map<std::vector<SchemaRef>, SchemaSet> set_numbers_;
  std::vector<const std::vector<SchemaRef>*> sets_;
  std::map<SchemaSet, std::unique_ptr<NormalSchema>> normals_;
  std::unordered_map<SchemaSet, bool> inhabited_;
  std::unordered_set<SchemaSet> open_sets_;
  std::map<std::pair<std::string, RegexDialects>, Expr> patterns_;
  std::map<std::string, std::uint32_t, std::less<>> name_numbers_;
  std::vector<std::string_view> names_;  // by number
  bool met_open_set_ = false;
  unsigned probing_ = 0, depth_ = 0;
  std::size_t work_ = 0;
};

}  // namespace forge::text::constraint

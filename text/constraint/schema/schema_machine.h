#pragma once
// JSON texts of normal schemas as expressions. What follows in an object or an array depends on its members so far, and
// is a call for each such state, defined when a text gets there.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/constraint/schema/schema.h"
#include "text/constraint/schema/schema_normal.h"

namespace forge::text::constraint {

class SchemaMachine {
 public:
  explicit SchemaMachine(RegularPool& pool, std::string_view schema);

  /// The texts that satisfy the schema at a JSON pointer. Brings every schema that a text can reach to its form, so
  /// that what is not supported is found now.
  [[nodiscard]] Expr start(std::string_view at);
  /// The same for a tagged value (schema.h).
  [[nodiscard]] Expr tagged(const TaggedValue& value);

 private:
  static constexpr std::uint32_t kUnplaced = UINT32_MAX;
  struct Member {
    Expr key = RegularPool::kEmpty;  // with its colon
    SchemaSet value = 0;
    std::string name;
    bool required = false;
    std::uint32_t place = kUnplaced;  // in the order of the members
    std::uint32_t wanted = 0;         // bits of the wanted properties that it may be
  };
  struct Others {
    Expr names = RegularPool::kEmpty;  // quoted
    SchemaSet value = 0;
    std::uint32_t wanted = 0;
  };
  struct ObjectForm {
    std::vector<Member> members;  // by their keys' texts
    RegularPool::Words keys;      // of the members; null where a member's value depends on what is wanted
    std::vector<Others> others;
    std::vector<SchemaRef> wanted;
    std::uint32_t min = 0, max = kUnbounded, required = 0;
    bool counts = false, distinct = false;  // count members; tell other names apart
    std::uint32_t others_max = 0;           // members with other names, or more than are needed
  };
  struct ObjectState {
    const ObjectForm* form = nullptr;
    std::vector<bool> left;                             // members that may still come
    std::uint32_t count = 0, required = 0, wanted = 0;  // required: of those left; wanted: bits still open
    bool first = true;
    std::vector<std::string> used;  // other names, where they must be told apart
  };
  struct ArrayForm {
    std::vector<SchemaSet> prefix;
    SchemaSet others = 0;
    std::uint32_t min = 0, max = kUnbounded;
    std::vector<ContainedItems> contains;
    bool unique = false, counts = false;
  };
  struct ArrayState {
    const ArrayForm* form = nullptr;
    std::uint32_t count = 0;
    std::vector<std::uint32_t> contained;
    std::vector<std::string> used;
  };

  Expr value(SchemaSet set);
  Expr scalars(const NormalSchema& normal, bool once);
  Expr value_body(SchemaSet set);
  Expr later(const RegularPool::CallFacts& facts, std::function<Expr()> body);
  void explore(SchemaSet set);
  /// The set of the schema at a JSON pointer, explored.
  SchemaSet explored_at(std::string_view at);
  void explore_all(SchemaSet root);

  const std::vector<std::unique_ptr<ObjectForm>>& object_forms(SchemaSet set);
  std::unique_ptr<ObjectForm> object_form(const ObjectCase& object, const SchemaNormalizer::Places& places);
  Expr object(const ObjectForm& form);
  Expr members(const ObjectState& state);
  Expr members_body(const ObjectState& state);
  static bool has_room(const ObjectState& state, bool required);
  static std::uint32_t next_required(const ObjectState& state);
  static bool reaches_min(const ObjectState& state);
  static void pass(ObjectState& state, std::uint32_t place);
  Expr named_members(const ObjectState& state);
  Expr after_key(const ObjectState& state, SchemaSet value, std::uint32_t wanted);
  bool viable(const ObjectState& state);

  const std::vector<std::unique_ptr<ArrayForm>>& array_forms(SchemaSet set);
  std::unique_ptr<ArrayForm> array_form(const ArrayCase& array, const SchemaJson* place);
  Expr array(const ArrayForm& form);
  Expr plain_items(const ArrayForm& form);
  Expr items(const ArrayState& state);
  Expr items_body(const ArrayState& state);
  Expr item_options(const ArrayState& state);
  Expr unique_item(const ArrayState& state, SchemaSet set, const std::function<Expr(const std::string&)>& then);
  bool viable(const ArrayState& state);

  SchemaDocument document_;
  JsonLanguage json_;
  SchemaNormalizer normalizer_;
  RegularPool& pool_;
  std::unordered_map<Expr, std::function<Expr()>> later_;
  std::vector<std::function<Expr(const std::string&)>> finish_;
  std::unordered_map<SchemaSet, Expr> values_;
  std::unordered_map<SchemaSet, std::vector<std::unique_ptr<ObjectForm>>> object_forms_;
  std::unordered_map<SchemaSet, std::vector<std::unique_ptr<ArrayForm>>> array_forms_;
  std::map<std::string, Expr> states_;
  std::map<std::string, bool> viable_;
  std::unordered_set<SchemaSet> explored_;
  std::vector<SchemaSet> to_explore_;
};

}  // namespace forge::text::constraint

#pragma once
// The parameters of a tool, for calls with a tag for each: which there are, and what each value must be.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace forge::text {

/// In the order of the text, which is that of the parameters.
using ToolJson = nlohmann::ordered_json;

/// The members of an object that a schema describes, by keywords that such calls can obey. Other keywords are refused.
/// References at the root are followed.
class CallParameters {
 public:
  struct One {
    std::string key;
    const ToolJson* schema;
    std::string at;  ///< JSON pointer of the schema in the root
  };
  /// Those that must come, and the others, as declared; names that are required and not declared come last.
  std::vector<One> needed, others;

  /// `root`: the schema; must outlive this. Error: kUsage for what cannot be obeyed, naming the keyword.
  explicit CallParameters(const ToolJson& root);

 private:
  [[noreturn]] static void refuse(std::string_view keyword);
  [[nodiscard]] const ToolJson& member(const char* key, const ToolJson& otherwise) const;
  [[nodiscard]] std::size_t number(const char* key, std::size_t otherwise) const;
  void find_object();
  void add_undeclared(const ToolJson& name);

  const ToolJson& root_;
  const ToolJson* object_;
  ToolJson::json_pointer at_;
};

/// A schema as text, and where in it the wanted one stands (JSON pointer; empty: all of it).
struct PlacedSchema {
  std::string text, at;
};
/// The schema of a parameter: alone with the root's definitions where it refers to these only, else within the root.
[[nodiscard]] PlacedSchema placed_schema(const ToolJson& root, const CallParameters::One& one);

/// Whether every text between tags is read as a value that the schema allows.
[[nodiscard]] bool takes_any_text(const ToolJson& schema);

}  // namespace forge::text

#include "text/constraint/schema/schema_document.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "support/error.h"

namespace forge::text::constraint {
namespace {

enum class Holds : std::uint8_t { kSchema, kList, kMap };

constexpr std::array<std::pair<std::string_view, Holds>, 22> kSubschemas{{{"additionalProperties", Holds::kSchema},
                                                                          {"additionalItems", Holds::kSchema},
                                                                          {"items", Holds::kSchema},
                                                                          {"contains", Holds::kSchema},
                                                                          {"not", Holds::kSchema},
                                                                          {"if", Holds::kSchema},
                                                                          {"then", Holds::kSchema},
                                                                          {"else", Holds::kSchema},
                                                                          {"propertyNames", Holds::kSchema},
                                                                          {"unevaluatedItems", Holds::kSchema},
                                                                          {"unevaluatedProperties", Holds::kSchema},
                                                                          {"allOf", Holds::kList},
                                                                          {"anyOf", Holds::kList},
                                                                          {"oneOf", Holds::kList},
                                                                          {"prefixItems", Holds::kList},
                                                                          {"items", Holds::kList},
                                                                          {"properties", Holds::kMap},
                                                                          {"patternProperties", Holds::kMap},
                                                                          {"$defs", Holds::kMap},
                                                                          {"definitions", Holds::kMap},
                                                                          {"dependentSchemas", Holds::kMap},
                                                                          {"dependencies", Holds::kMap}}};

std::string escaped_key(std::string_view key) {
  std::string text;
  for (const char c : key) {
    if (c == '~') {
      text += "~0";
    } else if (c == '/') {
      text += "~1";
    } else {
      text += c;
    }
  }
  return text;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  const auto digit = [](char c) {
    const char lower = static_cast<char>(c | 32);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool has_scheme(std::string_view uri) {
  const auto end = uri.find_first_of(":/?#");
  return end != std::string_view::npos && end > 0 && uri[end] == ':';
}

/// A reference against a base (source: RFC 3986, 5.2; without dot segments inside paths).
std::string resolved_uri(std::string_view base, std::string_view reference) {
  base = base.substr(0, base.find('#'));
  if (has_scheme(reference)) return std::string(reference);
  if (reference.empty() || reference[0] == '#') return std::string(base) + std::string(reference);
  const auto authority = base.find("://");
  const auto path = authority == std::string_view::npos ? (has_scheme(base) ? base.find(':') + 1 : 0)
                                                        : std::min(base.find('/', authority + 3), base.size());
  if (reference.starts_with("//")) return std::string(base.substr(0, base.find(':') + 1)) + std::string(reference);
  if (reference[0] == '/') return std::string(base.substr(0, path)) + std::string(reference);
  while (reference.starts_with("./")) reference.remove_prefix(2);
  auto folder = base.substr(0, base.find('?'));
  const auto slash = folder.rfind('/');
  folder = slash == std::string_view::npos || slash < path ? folder.substr(0, path) : folder.substr(0, slash + 1);
  const bool needs_slash = authority != std::string_view::npos && folder.size() == path;
  return std::string(folder) + (needs_slash ? "/" : "") + std::string(reference);
}

SchemaDraft draft_named(const std::string& uri, SchemaDraft otherwise) {
  for (const auto& [part, draft] : {std::pair("draft-03", SchemaDraft::k4),
                                    {"draft-04", SchemaDraft::k4},
                                    {"draft-06", SchemaDraft::k6},
                                    {"draft-07", SchemaDraft::k7},
                                    {"2019-09", SchemaDraft::k2019},
                                    {"2020-12", SchemaDraft::k2020}})
    if (uri.find(part) != std::string::npos) return draft;
  return otherwise;
}

const std::string* text_at(const SchemaJson& schema, const char* key) {
  const auto at = schema.find(key);
  return at != schema.end() && at->is_string() ? at->get_ptr<const std::string*>() : nullptr;
}

}  // namespace

SchemaDocument::SchemaDocument(std::string_view text) {
  if (text.size() > kSchemaBytesMax)
    throw Error(ErrorCode::kUsage, fmt::format("the JSON schema has {} bytes", text.size()),
                fmt::format("the limit is {}", kSchemaBytesMax));
  root_ = parse_bounded<SchemaJson>(text, kSchemaLimits, [](const std::string& why) {
    throw Error(ErrorCode::kUsage, fmt::format("the JSON schema {}", why));
  });
  if (root_.is_discarded()) throw Error(ErrorCode::kUsage, "the JSON schema is not valid JSON");
  if (!root_.is_object() && !root_.is_boolean())
    throw Error(ErrorCode::kUsage, "the JSON schema is neither an object nor true or false");
  identified_[""] = &root_;
  enter(root_, {}, 0);
}

const SchemaJson& SchemaDocument::keep(SchemaJson made, const SchemaJson& place) {
  made_.push_back(std::move(made));
  const auto facts = facts_.at(&place);
  facts_[&made_.back()] = facts;
  return made_.back();
}

void SchemaDocument::enter(const SchemaJson& schema, Facts facts, unsigned depth) {
  if (!schema.is_object()) {
    facts_.try_emplace(&schema, std::move(facts));
    return;
  }
  if (facts_.contains(&schema)) return;
  if (const auto* uri = text_at(schema, "$schema")) facts.draft = draft_named(*uri, facts.draft);
  const bool old = facts.draft <= SchemaDraft::k7;
  const auto* id = text_at(schema, facts.draft == SchemaDraft::k4 ? "id" : "$id");
  if (id != nullptr && !(old && schema.contains("$ref") && depth > 0)) {
    if (old && id->starts_with('#')) {
      identified_.try_emplace(facts.base + *id, &schema);
    } else {
      const auto uri = resolved_uri(facts.base, *id);
      facts.base = uri.substr(0, uri.find('#'));
      identified_.try_emplace(facts.base, &schema);
    }
  }
  for (const char* key : {"$anchor", "$dynamicAnchor"})
    if (const auto* anchor = text_at(schema, key)) identified_.try_emplace(facts.base + '#' + *anchor, &schema);
  const auto recursive = schema.find("$recursiveAnchor");
  dynamic_anchors_ += schema.contains("$dynamicAnchor") || (recursive != schema.end() && *recursive == true) ? 1U : 0U;
  tracks_evaluated_ |= schema.contains("unevaluatedProperties") || schema.contains("unevaluatedItems");
  facts_[&schema] = facts;
  enter_parts(schema, facts, depth + 1);
}

void SchemaDocument::enter_parts(const SchemaJson& schema, const Facts& facts, unsigned depth) {
  const auto enter_part = [&](const SchemaJson& part, std::string key) {
    if (part.is_object() || part.is_boolean())
      enter(part, {.parent = &schema, .key = std::move(key), .base = facts.base, .draft = facts.draft}, depth);
  };
  for (const auto& [keyword, holds] : kSubschemas) {
    const auto at = schema.find(keyword);
    if (at == schema.end()) continue;
    const std::string key(keyword);
    if (holds == Holds::kSchema) {
      enter_part(*at, key);
    } else if (holds == Holds::kList && at->is_array()) {
      for (std::size_t i = 0; i < at->size(); ++i) enter_part((*at)[i], fmt::format("{}/{}", key, i));
    } else if (holds == Holds::kMap && at->is_object()) {
      for (const auto& [name, part] : at->items()) enter_part(part, key + '/' + escaped_key(name));
    }
  }
}

std::string SchemaDocument::path(const SchemaJson& schema, std::string_view keyword) const {
  std::string text = keyword.empty() ? "" : "/" + escaped_key(keyword);
  for (const auto* at = &schema; at != nullptr;) {
    const auto known = facts_.find(at);
    if (known == facts_.end()) break;
    if (!known->second.key.empty()) text.insert(0, '/' + known->second.key);
    at = known->second.parent;
  }
  return '#' + text;
}

void SchemaDocument::refuse(const SchemaJson& schema, std::string_view keyword, const std::string& why) const {
  throw Error(ErrorCode::kUsage, fmt::format("JSON schema, {}", printable(path(schema, keyword), 200)), why);
}

const SchemaJson& SchemaDocument::resolve(const SchemaJson& schema, const std::string& keyword,
                                          const std::string& reference) {
  const auto uri = resolved_uri(facts_.at(&schema).base, reference);
  const auto hash = std::min(uri.find('#'), uri.size());
  const auto fragment = percent_decoded(hash < uri.size() ? uri.substr(hash + 1) : std::string());
  const auto resource = identified_.find(uri.substr(0, hash));
  if (resource == identified_.end())
    refuse(schema, keyword, fmt::format("{} is not in this document", printable(reference)));
  if (fragment.empty()) return *resource->second;
  if (fragment[0] == '/') return pointed(*resource->second, fragment, schema, keyword);
  const auto anchor = identified_.find(uri.substr(0, hash) + '#' + fragment);
  if (anchor == identified_.end())
    refuse(schema, keyword, fmt::format("{} is not in this document", printable(reference)));
  return *anchor->second;
}

const SchemaJson& SchemaDocument::pointed(const SchemaJson& from, std::string_view pointer, const SchemaJson& schema,
                                          const std::string& keyword) {
  const auto* at = &from;
  const auto* known = &from;  // the last subschema on the way
  std::string key;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const auto end = std::min(pointer.find('/'), pointer.size());
    std::string part;
    for (std::size_t i = 0; i < end; ++i) {
      const bool escaped = pointer[i] == '~' && i + 1 < end;
      part += !escaped ? pointer[i] : pointer[i + 1] == '1' ? '/' : '~';
      i += escaped ? 1 : 0;
    }
    pointer.remove_prefix(end);
    const SchemaJson* next = nullptr;
    if (at->is_object() && at->contains(part)) next = &at->at(part);
    if (at->is_array() && !part.empty() && part.size() < 9 &&
        part.find_first_not_of("0123456789") == std::string::npos) {
      const auto index = static_cast<std::size_t>(std::stoul(part));
      if (index < at->size()) next = &(*at)[index];
    }
    if (next == nullptr) refuse(schema, keyword, "it points to nothing in this document");
    key += (key.empty() ? "" : "/") + escaped_key(part);
    at = next;
    if (facts_.contains(at)) {
      known = at;
      key.clear();
    }
  }
  if (!at->is_object() && !at->is_boolean()) refuse(schema, keyword, "it points to something that is no schema");
  if (!facts_.contains(at)) {
    const auto& outer = facts_.at(known);
    enter(*at, {.parent = known, .key = key, .base = outer.base, .draft = outer.draft}, 0);
  }
  return *at;
}

}  // namespace forge::text::constraint

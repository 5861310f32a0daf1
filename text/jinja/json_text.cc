// Python's json.dumps (behind the tojson filter) and strftime (behind strftime_now).
#include <fmt/format.h>
#include <locale.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/jinja/builtins.h"
#include "text/jinja/pytext.h"
#include "text/jinja/template.h"

namespace forge::text::jinja {
namespace {

// Writes a value exactly as json.dumps does, and charges the budget for the text.
class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  std::string out;

  void write(const Value& value, std::size_t depth) {
    const std::size_t before = out.size();
    budget_.step();
    switch (value.kind()) {
      case Kind::kNone:
        out += "null";
        break;
      case Kind::kBool:
        out += value.boolean() ? "true" : "false";
        break;
      case Kind::kInt:
        out += std::to_string(value.integer());
        break;
      case Kind::kFloat:
        out += number(value.real());
        break;
      case Kind::kString:
        budget_.read(value.text().size());
        string(value.text());
        break;
      case Kind::kDict:
        return dict(value.dict(), depth);
      case Kind::kList:
        if (value.list().kind <= ListKind::kTuple) return list(value.list(), depth);
        [[fallthrough]];
      default:
        throw EvalError(fmt::format("object of type {} is not JSON serializable", value.type_name()));
    }
    budget_.allocate(out.size() - before);
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  // A line break and the indentation, if an indent is given.
  void line(std::size_t depth) {
    if (!style_.indent) return;
    out += '\n';
    budget_.allocate(1 + depth * style_.indent->size());
    for (std::size_t i = 0; i < depth; ++i) out += *style_.indent;
  }

  void list(const List& list, std::size_t depth) {
    out += '[';
    budget_.allocate(2);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i != 0) separator();
      line(depth + 1);
      write(list.items[i], depth + 1);
    }
    if (!list.items.empty()) line(depth);
    out += ']';
  }

  void separator() {
    budget_.allocate(style_.item_separator.size());
    out += style_.item_separator;
  }

  void dict(const Dict& dict, std::size_t depth) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys)
      std::ranges::stable_sort(entries, [&](const auto* a, const auto* b) {
        return compare(a->first, b->first, "<", budget_).value_or(0) < 0;
      });
    out += '{';
    budget_.allocate(2 + entries.size() * sizeof(void*));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i != 0) separator();
      line(depth + 1);
      key(entries[i]->first);
      budget_.allocate(style_.key_separator.size());
      out += style_.key_separator;
      write(entries[i]->second, depth + 1);
    }
    if (!entries.empty()) line(depth);
    out += '}';
  }

  // As in Python, numbers, bools and None become strings as keys.
  void key(const Value& key) {
    const std::size_t before = out.size();
    if (key.is_string()) {
      string(key.text());
    } else if (key.is_number() || key.is(Kind::kNone)) {
      out += '"';
      write(key, 0);
      out += '"';
    } else {
      throw EvalError("keys must be str, int, float, bool or None to be written as JSON");
    }
    budget_.allocate(out.size() - before);
  }

  void string(std::string_view text) {
    out += nlohmann::json(text).dump(-1, ' ', style_.ensure_ascii, nlohmann::json::error_handler_t::replace);
  }

  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value, 0);
  return std::move(writer.out);
}

std::string format_time(const Clock& now, const std::string& format) {
  if (format.size() > 4096) throw EvalError("a time format is too long");
  std::string plain;  // the format without what strftime lacks (%f) or must not print (time zones)
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      plain += format[i];
    } else if (const char letter = format[++i]; letter == 'f') {
      plain += fmt::format("{:06}", now.microseconds);
    } else if (letter != 'z' && letter != 'Z') {
      plain += '%';
      plain += letter;
    }
  }
  const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  std::string out(plain.size() * 64 + 64, '\0');
  plain += 'x';  // strftime returns 0 for a failure and for an empty result; this tells them apart
  out.resize(strftime_l(out.data(), out.size(), plain.c_str(), &now.fields, locale));
  freelocale(locale);
  if (out.empty() || out.back() != 'x') throw EvalError("this time format cannot be written");
  out.pop_back();
  return out;
}

}  // namespace forge::text::jinja

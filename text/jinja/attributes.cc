// Attributes and methods of values other than strings, and the global functions (range, namespace, raise_exception,
// ...).
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "text/jinja/interp.h"
#include "text/jinja/pytext.h"

namespace forge::text::jinja {
namespace {

using Method = Value (*)(Interp& interp, const Value& self, CallArgs& arguments);

/// dict.keys(), values() or items(): copied, since a dict never changes after it is built.
Value view(Interp& interp, const Value& self, ListKind kind) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries())
    items.push_back(kind == ListKind::kKeys ? key : kind == ListKind::kValues ? value : Value::tuple({key, value}));
  interp.budget.allocate(items.size() * 2 * sizeof(Value));
  return interp.list(std::move(items), kind);
}

Value dict_keys(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("keys", arguments, {});
  return view(interp, self, ListKind::kKeys);
}
Value dict_values(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("values", arguments, {});
  return view(interp, self, ListKind::kValues);
}
Value dict_items(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("items", arguments, {});
  return view(interp, self, ListKind::kItems);
}
Value dict_get(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("get", arguments, {"key", "default"});
  if (!hash(bound.required(0), interp.budget)) throw EvalError("unhashable key");
  const Value* value = self.dict().find(bound.required(0), interp.budget);
  return value != nullptr ? *value : bound.get(1, Value());
}
Value container_copy(Interp&, const Value& self, CallArgs& arguments) {
  const Bound bound("copy", arguments, {});
  return self;  // immutable, so it is its own copy
}

Value list_count(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("count", arguments, {"value"});
  return Value::integer(std::ranges::count_if(
      self.list().items, [&](const Value& item) { return equal(item, bound.required(0), interp.budget); }));
}
// list.index(value, start, stop)
Value list_index(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("index", arguments, {"value", "start", "stop"});
  const std::int64_t size = length(self);
  const auto clamp = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
  const std::int64_t stop = clamp(bound.integer(2, size));
  for (std::int64_t i = clamp(bound.integer(1, 0)); i < stop; ++i)
    if (equal(self.list().items[static_cast<std::size_t>(i)], bound.required(0), interp.budget))
      return Value::integer(i);
  throw EvalError(fmt::format("{} is not in list", to_repr(bound.required(0), interp.budget)));
}

// The methods of dict, list, tuple and range; mutating ones are left out.
Method find_container_method(const Value& object, std::string_view name) {
  if (object.is(Kind::kDict)) {
    if (name == "keys") return dict_keys;
    if (name == "values") return dict_values;
    if (name == "items") return dict_items;
    if (name == "get") return dict_get;
    if (name == "copy") return container_copy;
    return nullptr;
  }
  const ListKind kind = object.list().kind;
  if (kind > ListKind::kRange) return nullptr;
  if (name == "count") return list_count;
  if (name == "index") return list_index;
  if (name == "copy" && kind == ListKind::kList) return container_copy;
  return nullptr;
}

/// A method with its `self` as a callable. It charges the budget for reading a long string at every call.
Value bound_method(std::string_view name, Method method, const Value& self) {
  const auto call = [method, self](Interp& interp, CallArgs& arguments) {
    if (self.is_string()) interp.budget.read(self.text().size());
    return method(interp, self, arguments);
  };
  return Value::callable(std::string(name), call, self.nesting() + 1);
}

std::optional<Value> space_attribute(const Namespace& space, std::string_view name) {
  for (const auto& [key, value] : space.attributes)
    if (key == name) return value;
  return std::nullopt;
}

// --- globals

// range(stop), range(start, stop) or range(start, stop, step), with the sandbox's limit on the number of elements.
Value global_range(Interp& interp, const Value&, CallArgs& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"});
  std::int64_t start = require_integer(bound.required(0), "range"), stop = start;
  if (bound.has(1))
    stop = bound.integer(1, 0);
  else
    start = 0;
  const std::int64_t step = bound.integer(2, 1);
  if (step == 0) throw EvalError("range() arg 3 must not be zero");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  // Unsigned arithmetic, because the distance of two int64 may not fit an int64.
  const auto distance = [](std::int64_t from, std::int64_t to) {
    return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
  };
  const std::uint64_t span = step > 0 ? distance(start, stop) : distance(stop, start);
  const std::uint64_t width = step > 0 ? static_cast<std::uint64_t>(step) : distance(step, 0);
  const std::uint64_t count = empty ? 0 : (span - 1) / width + 1;
  if (count > static_cast<std::uint64_t>(kRangeMax))
    throw EvalError(fmt::format("range too big: the sandbox allows {} elements", kRangeMax));
  std::vector<Value> items;
  interp.budget.allocate(count * sizeof(Value));
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i) items.push_back(Value::integer(start + i * step));
  return Value::range(start, stop, step, std::move(items));
}

/// The pairs given to dict(...) or namespace(...): first a mapping or an iterable of pairs, then keywords.
Dict gather(Interp& interp, std::string_view name, CallArgs& arguments) {
  if (arguments.positional.size() > 1) throw EvalError(fmt::format("{}() takes at most 1 positional argument", name));
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    if (source.is(Kind::kDict)) {
      dict = source.dict();
      interp.budget.allocate(dict.size() * 2 * sizeof(Value));
    } else {
      for (const Value& pair : elements(source, interp.budget)) {
        std::vector<Value> parts = elements(pair, interp.budget);
        if (parts.size() != 2) throw EvalError(fmt::format("{}() needs pairs", name));
        dict.set(std::move(parts[0]), std::move(parts[1]), interp.budget);
      }
    }
  }
  for (auto& [key, value] : arguments.named) dict.set(Value::string(key), std::move(value), interp.budget);
  interp.budget.allocate(dict.size() * 2 * sizeof(Value));
  return dict;
}

Value global_dict(Interp& interp, const Value&, CallArgs& arguments) {
  return Value::dict(gather(interp, "dict", arguments));
}

// namespace(...): an object whose attributes {% set ns.x = ... %} can change, even from inside a loop.
Value global_namespace(Interp& interp, const Value&, CallArgs& arguments) {
  const Dict dict = gather(interp, "namespace", arguments);
  std::vector<std::pair<std::string, Value>> attributes;
  for (const auto& [key, value] : dict.entries()) attributes.emplace_back(require_text(key, "a name"), value);
  return interp.make_namespace(std::move(attributes));
}

// raise_exception(message): the template rejects the conversation. Not an EvalError, so the error message can say so.
Value global_raise(Interp& interp, const Value&, CallArgs& arguments) {
  const Bound bound("raise_exception", arguments, {"message"});
  throw RaisedException{interp.str(bound.required(0))};
}

// strftime_now(format), which Hugging Face adds to Jinja.
Value global_strftime(Interp& interp, const Value&, CallArgs& arguments) {
  const Bound bound("strftime_now", arguments, {"format"});
  return interp.text(format_time(interp.now(), bound.text(0)));
}

// The returned function gives an empty string at its first call and the separator afterwards.
Value global_joiner(Interp&, const Value&, CallArgs& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  const Value separator = bound.get(0, Value::string(", "));
  const auto call = [separator, used = std::make_shared<bool>(false)](Interp&, CallArgs&) {
    return std::exchange(*used, true) ? separator : Value::string("");
  };
  return Value::callable("joiner", call, separator.nesting() + 1);
}

// An object whose next() walks through the items again and again. All copies share the position.
Value global_cycler(Interp&, const Value&, CallArgs& arguments) {
  if (arguments.positional.empty()) throw EvalError("at least one item has to be provided");
  auto cycler = std::make_shared<Callable>();
  cycler->name = "cycler";
  cycler->attribute = [items = arguments.positional, at = std::make_shared<std::size_t>(0)](std::string_view name) {
    if (name == "current") return items[*at];
    if (name == "pos") return Value::integer(static_cast<std::int64_t>(*at));
    if (name == "reset")
      return Value::callable("reset", [at](Interp&, CallArgs&) {
        *at = 0;
        return Value();
      });
    const auto next = [items, at](Interp&, CallArgs&) {
      Value now = items[*at];
      *at = (*at + 1) % items.size();
      return now;
    };
    return Value::callable("next", next, Value::list(items).nesting() + 1);
  };
  cycler->nesting = Value::list(arguments.positional).nesting() + 1;
  return Value::object(std::shared_ptr<const Callable>(std::move(cycler)));
}

constexpr std::pair<std::string_view, Method> kGlobals[] = {
    {"range", global_range},          {"dict", global_dict},     {"namespace", global_namespace},
    {"joiner", global_joiner},        {"cycler", global_cycler}, {"raise_exception", global_raise},
    {"strftime_now", global_strftime}};

}  // namespace

std::optional<Value> find_global(Interp&, std::string_view name) {
  for (const auto& [known, function] : kGlobals)
    if (known == name) return bound_method(name, function, Value());
  return std::nullopt;
}

// The methods that ImmutableSandboxedEnvironment hides.
bool is_mutator(const Value& object, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.is_list(ListKind::kList)) return std::ranges::find(kList, name) != std::end(kList);
  if (object.is(Kind::kDict)) return std::ranges::find(kDict, name) != std::end(kDict);
  return false;
}

std::optional<Value> find_attribute(Interp& interp, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString: {
      StringMethod method = find_string_method(name);
      if (method == nullptr) method = find_string_predicate(name);
      return method == nullptr ? std::nullopt : std::optional(bound_method(name, method, object));
    }
    case Kind::kDict:
      break;
    case Kind::kList: {
      const List& list = object.list();
      // The tuples of groupby are named tuples.
      if (list.kind == ListKind::kTuple && list.label == "group" && (name == "grouper" || name == "list"))
        return list.items[name == "list" ? 1 : 0];
      break;
    }
    case Kind::kNamespace:
      return space_attribute(object.space(), name);
    case Kind::kLoop:
      return interp.loop_attribute(object.loop(), name);
    case Kind::kCallable: {
      static constexpr std::string_view kNames[] = {"name",    "arguments", "catch_kwargs", "catch_varargs", "caller",
                                                    "current", "pos",       "reset",        "next"};
      // The first five names belong to macros, the rest to cyclers.
      const Callable& callable = object.callable();
      const auto* known = std::ranges::find(kNames, name);
      if (!callable.attribute || known == std::end(kNames) || (known - kNames < 5) != callable.macro)
        return std::nullopt;
      return callable.attribute(name);
    }
    default:
      return std::nullopt;
  }
  const Method method = find_container_method(object, name);
  return method == nullptr ? std::nullopt : std::optional(bound_method(name, method, object));
}

}  // namespace forge::text::jinja

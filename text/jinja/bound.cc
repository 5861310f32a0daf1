// Binds the arguments of a call to parameter names, with Python's rules and messages.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/builtins.h"

namespace forge::text::jinja {

Bound::Bound(std::string_view function, CallArgs& arguments, std::initializer_list<std::string_view> parameters)
    : function_(function) {
  std::ranges::copy(parameters, names_.begin());
  if (arguments.positional.size() > parameters.size())
    throw EvalError(fmt::format("{}() takes at most {} argument(s)", function, parameters.size()));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::ranges::find(parameters, std::string_view(name));
    if (it == parameters.end())
      throw EvalError(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    const Value*& slot = values_[static_cast<std::size_t>(it - parameters.begin())];
    if (slot != nullptr) throw EvalError(fmt::format("{}() got multiple values for argument '{}'", function, name));
    slot = &value;
  }
}

const Value& Bound::required(std::size_t index) const {
  if (values_[index] == nullptr)
    throw EvalError(fmt::format("{}() misses its argument '{}'", function_, names_[index]));
  return *values_[index];
}

std::int64_t Bound::integer(std::size_t index, std::int64_t otherwise) const {
  return has(index) ? require_integer(*values_[index], function_) : otherwise;
}

const std::string& Bound::text(std::size_t index) const {
  return require_text(required(index), function_);
}

std::int64_t require_integer(const Value& value, std::string_view what) {
  require_defined(value);
  if (!value.is_integer()) throw EvalError(fmt::format("{} needs an integer, not '{}'", what, value.type_name()));
  return value.integer();
}

const std::string& require_text(const Value& value, std::string_view what) {
  require_defined(value);
  if (!value.is_string()) throw EvalError(fmt::format("{} needs a string, not '{}'", what, value.type_name()));
  return value.text();
}

}  // namespace forge::text::jinja

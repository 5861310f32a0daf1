// Reads chat requests from JSON. This is the only file of the library that includes nlohmann/json.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "support/error.h"
#include "text/chat/chat.h"

namespace forge::text {
namespace {

constexpr std::size_t kJsonBytesMax = 256u << 20;

/// A SAX handler that builds template Values directly while the text is parsed: no second tree in memory, the order of
/// members is kept, and the depth is bounded. Integers that do not fit 64 bits are refused instead of becoming doubles.
class ValueBuilder {
 public:
  Value result;
  std::string error;

  bool null() { return add(Value()); }
  bool boolean(bool value) { return add(Value::boolean(value)); }
  bool number_integer(std::int64_t value) { return add(Value::integer(value)); }
  bool number_unsigned(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return fail("an integer does not fit 64 bits");
    return add(Value::integer(static_cast<std::int64_t>(value)));
  }
  // The parser reports integers beyond 64 bits as floats.
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) return fail("an integer does not fit 64 bits");
    return add(Value::real(value));
  }
  bool string(std::string& text) { return add(Value::string(std::move(text))); }
  bool binary(nlohmann::json::binary_t&) { return fail("binary data"); }
  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool key(std::string& name) {
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return add(Value::dict(std::move(level.dict)));
  }
  bool end_array() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return add(Value::list(std::move(level.items)));
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    if (error.empty()) error = fmt::format("it is not JSON at byte {}", position);
    return false;
  }

 private:
  /// An object or array that is not closed yet; `key` is the member whose value comes next.
  struct Level {
    bool object;
    std::string key;
    Dict dict;
    std::vector<Value> items;
  };
  bool fail(std::string message) {
    error = std::move(message);
    return false;
  }
  bool open(bool object) {
    // The last levels below kNestingMax are left to values that templates build around the request's.
    if (open_.size() >= static_cast<std::size_t>(jinja::kNestingMax) - 20) return fail("it is nested too deeply");
    open_.push_back({object, {}, {}, {}});
    return true;
  }
  // Puts a finished value into the innermost open container, or makes it the result.
  bool add(Value value) {
    if (open_.empty())
      result = std::move(value);
    else if (open_.back().object)
      open_.back().dict.set(std::move(open_.back().key), std::move(value));
    else
      open_.back().items.push_back(std::move(value));
    return true;
  }
  std::vector<Level> open_;
};

[[noreturn]] void reject(const std::string& why) {
  throw Error(ErrorCode::kUsage, "the chat request cannot be used", why,
              "give a JSON object with messages, tools, add_generation_prompt, bos_token, eos_token, now");
}

std::string text_field(const Value& value, const std::string& name) {
  if (value.is(jinja::Kind::kNone)) return {};
  if (!value.is_string()) reject(fmt::format("{} is not a string", name));
  return value.text();
}

}  // namespace

ChatRequest parse_chat_request(std::string_view json) {
  if (json.size() > kJsonBytesMax) reject("it is larger than 256 MiB");
  ValueBuilder builder;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &builder))
    reject(builder.error.empty() ? "it is not JSON" : builder.error);
  if (!builder.result.is(jinja::Kind::kDict)) reject("it is not a JSON object");
  ChatRequest request;
  bool messages = false;
  request.add_generation_prompt = false;
  for (const auto& [key, value] : builder.result.dict().entries()) {
    const std::string& name = key.text();
    if (name == "messages") {
      if (!value.is(jinja::Kind::kList)) reject("messages is not a list");
      request.messages = value;
      messages = true;
    } else if (name == "tools") {
      request.tools = value;
    } else if (name == "add_generation_prompt") {
      if (!value.is(jinja::Kind::kBool) && !value.is(jinja::Kind::kNone))
        reject("add_generation_prompt is not a boolean");
      request.add_generation_prompt = truth(value);
    } else if (name == "bos_token") {
      request.bos_token = text_field(value, name);
    } else if (name == "eos_token") {
      request.eos_token = text_field(value, name);
    } else if (name == "now") {
      if (!value.is(jinja::Kind::kNone)) request.now = Clock::parse(text_field(value, name));
    } else {
      request.extra.set(name, value);
    }
  }
  if (!messages) reject("it has no messages");
  return request;
}

}  // namespace forge::text

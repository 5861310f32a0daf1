#include "ir/text/attrs_io.h"

#include <fmt/format.h>

#include <utility>

namespace forge::ir {
namespace {

/// Visitor that prints "{name = value; ...". Members that are the result's type are left out (kIsResultType). fmt
/// prints the shortest decimal that reads back as the same float.
class Printer {
 public:
  template <class T>
  void operator()(std::string_view name, const T& value) {
    if constexpr (!kIsResultType<T>) {
      out += out.empty() ? "{" : "; ";
      out += name;
      out += " = ";
      put(value);
    }
  }
  std::string out;

 private:
  void put(const std::string& value) { out += quoted(value); }
  template <class T>
    requires std::is_arithmetic_v<T>
  void put(T value) {
    out += fmt::format("{}", value);
  }
  template <class T>
    requires std::is_enum_v<T>
  void put(T value) {
    out += enum_name(value);
  }
  template <class T>
  void put(const std::vector<T>& values) {
    out += '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out += ", ";
      put(values[i]);
    }
    out += ']';
  }
};

/// Visitor that appends members as bytes for hashing. Strings and vectors are preceded by their length, so that the
/// bytes of different structs of one type always differ.
class Appender {
 public:
  explicit Appender(std::string& bytes) : bytes_(bytes) {}
  template <class T>
  void operator()(std::string_view, const T& value) {
    put(value);
  }

 private:
  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(const std::string& value) {
    put(value.size());
    bytes_ += value;
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(values.size());
    for (const T& value : values) put(value);
  }
  void put(const TensorType& type) { append_type(bytes_, type); }
  std::string& bytes_;
};

/// Emplaces the alternative whose number I equals `index`: the fold stops at the first match.
template <std::size_t... I>
Attrs make_default(std::size_t index, std::index_sequence<I...>) {
  Attrs attrs;
  (void)((index == I && (attrs.emplace<I>(), true)) || ...);
  return attrs;
}

}  // namespace

std::string print_attrs(const Attrs& attrs) {
  Printer printer;
  std::visit([&](const auto& fields) { fields.fields(printer); }, attrs);
  return printer.out.empty() ? "" : printer.out + '}';
}

void append_type(std::string& bytes, const TensorType& type) {
  bytes += static_cast<char>(type.dtype);
  bytes += static_cast<char>(type.shape.size());
  for (const Dim& dim : type.shape) {
    bytes += static_cast<char>(dim.symbol);
    bytes.append(reinterpret_cast<const char*>(&dim.value), sizeof dim.value);
  }
}

void append_attrs(std::string& bytes, const Attrs& attrs) {
  bytes += static_cast<char>(attrs.index());
  Appender appender(bytes);
  std::visit([&](const auto& fields) { fields.fields(appender); }, attrs);
}

Attrs default_attrs(std::size_t index) {
  return make_default(index, std::make_index_sequence<std::variant_size_v<Attrs>>{});
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (byte < 0x20 || byte >= 0x7F)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + '"';
}

}  // namespace forge::ir

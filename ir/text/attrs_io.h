#pragma once
// Generic operations on op attributes, all built on the structs' `fields(visitor)`: names of enumerators, printing,
// bytes for hashing, and default structs by variant index. Used by the text form, the graph hash and the op table; the
// parser's own visitor is in text_parse.cc.

#include <array>
#include <string>
#include <string_view>
#include <type_traits>

#include "ir/attrs.h"

namespace forge::ir {

/// Names of an attribute enum's values in the text form, in the enum's order. Plans store them.
template <class E>
inline constexpr std::array<std::string_view, 0> kEnumNames{};
template <>
inline constexpr std::array<std::string_view, 9> kEnumNames<InputKind>{
    "ids", "positions", "sequence", "rows", "kv_length", "block_table", "embeddings", "state_read", "state_write"};
#define FORGE_ACTIVATION_NAME(name, ...) #name,
template <>
inline constexpr auto kEnumNames<Activation> =
    std::to_array<std::string_view>({FORGE_ELEMENTWISE_FUNCTIONS(FORGE_NO_ROW, FORGE_ACTIVATION_NAME)});
#undef FORGE_ACTIVATION_NAME
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<RopeMode>{"pairs", "halves"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<KvHalf>{"both", "keys", "values"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<RopeScaling>{"none", "linear", "yarn"};

template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<RouteGate>{"softmax", "sigmoid"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<RoutingNormalization>{"all", "chosen"};

/// True for members that hold the result's type or its element type. The text form prints these after the colon only,
/// not among the attributes.
template <class T>
inline constexpr bool kIsResultType = std::is_same_v<T, TensorType> || std::is_same_v<T, DType>;

/// "?" for a value outside the enum.
template <class E>
  requires std::is_enum_v<E>
constexpr std::string_view enum_name(E value) {
  const auto index = static_cast<std::size_t>(value);
  return index < kEnumNames<E>.size() ? kEnumNames<E>[index] : "?";
}

/// "{name = value; ...}", or "" if there is nothing to print. Floats round-trip exactly. Members with kIsResultType are
/// left out.
std::string print_attrs(const Attrs& attrs);
/// Appends all members, types included, to `bytes`, for hashing: equal attributes give equal bytes.
void append_attrs(std::string& bytes, const Attrs& attrs);
void append_type(std::string& bytes, const TensorType& type);
/// A default-constructed struct of the variant's alternative `index`.
Attrs default_attrs(std::size_t index);

/// `text` in double quotes; quotes and backslashes are escaped with a backslash, all bytes outside printable ASCII as
/// \xHH.
std::string quoted(std::string_view text);

/// Index of A in the variant Attrs.
template <class A, std::size_t I = 0>
consteval std::size_t attrs_index() {
  if constexpr (std::is_same_v<A, std::variant_alternative_t<I, Attrs>>)
    return I;
  else
    return attrs_index<A, I + 1>();
}

}  // namespace forge::ir

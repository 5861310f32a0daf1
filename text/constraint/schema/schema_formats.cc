#include "text/constraint/schema/schema_formats.h"

#include <fmt/core.h>

#include <array>
#include <string>

#include "text/constraint/regex_syntax.h"

namespace forge::text::constraint {
namespace {

// Sources: RFC 3339 (dates, times, durations), 5321 (email), 1123 (hostname), 2673 and 4291 (addresses), 4122 (uuid),
// 3986 and 3987 (uri, iri), 6570 (templates), 6901 (JSON pointers). Leap seconds are left out. Dates are those of the
// calendar.
constexpr std::string_view kDate =
    "((000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-"
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|"
    "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,12})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))";
constexpr std::string_view kDuration =
    "P([0-9]+W|(([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?"
    "|"
    "[0-9]+S))?|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)))";
constexpr std::string_view kIpv4 =
    "((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3})";

std::string hostname() {
  const auto label = [](std::string_view longest) {
    return "[A-Za-z0-9]([A-Za-z0-9-]{0," + std::string(longest) + "}[A-Za-z0-9])?";
  };
  // Together at most 253: three labels of 63, or eight of 30.
  return "(" + label("61") + "(\\." + label("61") + "){0,2}|" + label("28") + "(\\." + label("28") + "){0,7})";
}

std::string ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}", low = "(" + h + ":" + h + "|" + std::string(kIpv4) + ")";
  const auto before = [&](int most) {
    return most == 0 ? std::string() : "(" + h + "(:" + h + "){0," + std::to_string(most - 1) + "})?";
  };
  std::string all = "((" + h + ":){6}" + low;
  for (int after = 5; after >= 0; --after) {
    const auto groups = after > 0 ? fmt::format("({}:){{{}}}", h, after) : std::string();
    all += fmt::format("|{}::{}{}", before(5 - after), groups, low);
  }
  return all + "|" + before(6) + "::" + h + "|" + before(7) + "::)";
}

constexpr std::string_view kUnreserved = "A-Za-z0-9._~!$&'()*+,;=\\-";

/// `more`: characters beyond ASCII; `scheme`: it must have one.
std::string uri(std::string_view more, bool scheme) {
  const auto set = [&](std::string_view extra) {
    return "([" + std::string(kUnreserved) + std::string(extra) + std::string(more) + "]|%[0-9A-Fa-f]{2})";
  };
  const auto character = set(":@"), segments = "(/" + character + "*)*";
  const auto authority = "(" + set(":") + "*@)?(\\[(" + ipv6() +
                         "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|" + set("") + "*)(:[0-9]*)?";
  const auto tail = "(\\?(" + character + "|[/?])*)?(#(" + character + "|[/?])*)?";
  const auto rooted = "//" + authority + segments + "|/(" + character + "+" + segments + ")?";
  if (scheme) return "[A-Za-z][A-Za-z0-9+.-]*:(" + rooted + "|" + character + "+" + segments + ")?" + tail;
  return "([A-Za-z][A-Za-z0-9+.-]*:(" + rooted + "|" + character + "+" + segments + ")?|(" + rooted + "|" + set("@") +
         "+" + segments + ")?)" + tail;
}

std::string email(std::string_view more) {
  const auto atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" + std::string(more) + "-]+";
  const auto quoted = "\"([^\\x00-\\x1f\"\\\\\\x7f-\\u{10ffff}]|\\\\[\\x20-\\x7e])*\"";
  return "(" + atom + "(\\." + atom + ")*|" + quoted + ")@(" + hostname() + "|\\[" + std::string(kIpv4) +
         "\\]|\\[IPv6:" + ipv6() + "\\])";
}

constexpr std::string_view kBeyondAscii = "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FFEF}\\u{10000}-\\u{1FFFD}";

std::string expression_of(std::string_view format) {
  if (format == "date") return std::string(kDate);
  if (format == "time") return std::string(kTime);
  if (format == "date-time") return std::string(kDate) + "[Tt]" + std::string(kTime);
  if (format == "duration") return std::string(kDuration);
  if (format == "ipv4") return std::string(kIpv4);
  if (format == "ipv6") return ipv6();
  if (format == "hostname") return hostname();
  if (format == "email") return email("");
  if (format == "idn-email") return email(kBeyondAscii);
  if (format == "uuid") return "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
  if (format == "uri") return uri("", true);
  if (format == "uri-reference") return uri("", false);
  if (format == "iri") return uri(kBeyondAscii, true);
  if (format == "iri-reference") return uri(kBeyondAscii, false);
  if (format == "json-pointer") return "(/([^~/]|~[01])*)*";
  if (format == "relative-json-pointer") return "(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)";
  if (format == "uri-template")
    return "([^\\x00-\\x20\"'%<>\\\\^`{|}]|%[0-9A-Fa-f]{2}|\\{[+#./;?&]?[A-Za-z0-9_.]+(\\*|:[1-9][0-9]{0,3})?"
           "(,[A-Za-z0-9_.]+(\\*|:[1-9][0-9]{0,3})?)*\\})*";
  return {};
}

}  // namespace

SchemaFormat format_texts(RegularPool& pool, std::string_view format, Expr& texts) {
  if (format == "regex" || format == "idn-hostname") return SchemaFormat::kUnsupported;
  const auto expression = expression_of(format);
  if (expression.empty()) return SchemaFormat::kUnknown;
  texts = parse_regex(pool, expression);
  return SchemaFormat::kKnown;
}

}  // namespace forge::text::constraint

#include "codegen/gpu/source/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "support/error.h"

namespace forge::codegen {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

/// The text after '#' of a preprocessor directive: "include \"a\"" for " # include \"a\""; empty for other lines.
std::string_view directive(std::string_view line) {
  line = trimmed(line);
  return line.starts_with('#') ? trimmed(line.substr(1)) : std::string_view();
}

/// The path of an #include "..." directive (without '#'); empty for other directives.
std::string_view included(std::string_view words) {
  if (!words.starts_with("include")) return {};
  words = trimmed(words.substr(7));
  if (!words.starts_with('"')) return {};
  words.remove_prefix(1);
  const auto end = words.find('"');
  return end == std::string_view::npos ? std::string_view() : words.substr(0, end);
}

const EmbeddedSource& find_source(std::string_view path, std::string_view from) {
  const auto sources = embedded_sources();
  const auto found = std::ranges::lower_bound(sources, path, {}, &EmbeddedSource::path);
  if (found == sources.end() || found->path != path)
    throw Error(ErrorCode::kInternal, fmt::format("{} includes {}", printable(from), printable(path)),
                "kernels/ did not have this header when forge was built");
  return *found;
}

/// Expands includes. Include guards (FORGE_ONCE_...) replace #pragma once: if an include is inside a conditional
/// branch, only the compiler knows whether the branch is taken, so the header's text is repeated at a later include,
/// under the same guard. A header that was included outside all branches is not repeated.
class Expander {
 public:
  void expand(std::string_view text, std::string_view name) {
    const int conditions_outside = conditions_;
    out_ += fmt::format("#line 1 \"{}\"\n", name);
    int number = 0;
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t end = std::min(text.find('\n', start), text.size());
      const std::string_view line = text.substr(start, end - start);
      start = end + 1;
      ++number;
      const std::string_view words = directive(line);
      if (words.starts_with("if")) ++conditions_;
      if (words.starts_with("endif")) --conditions_;
      if (const std::string_view path = included(words); !path.empty()) {
        include(path, name);
        out_ += fmt::format("#line {} \"{}\"\n", number + 1, name);
      } else if (words.starts_with("pragma once")) {
        out_ += '\n';
      } else {
        out_.append(line).append("\n");
      }
    }
    conditions_ = conditions_outside;
  }
  std::string take() { return std::move(out_); }

 private:
  void include(std::string_view path, std::string_view from) {
    const EmbeddedSource& source = find_source(path, from);
    if (taken_.contains(source.path) || std::ranges::find(open_, source.path) != open_.end()) return;
    std::string guard = "FORGE_ONCE_";
    for (const char c : source.path) guard += c == '/' || c == '.' ? '_' : c;
    out_ += fmt::format("#ifndef {}\n#define {}\n", guard, guard);
    open_.push_back(source.path);
    expand(source.text, source.path);
    open_.pop_back();
    out_ += "#endif\n";
    if (conditions_ == 0) taken_.insert(source.path);
  }

  std::string out_;
  int conditions_ = 0;                  ///< open #if branches, over all files that are being expanded
  std::vector<std::string_view> open_;  ///< headers that are being expanded, outermost first
  std::set<std::string_view> taken_;
};

}  // namespace

std::string expand_source(std::string_view text, std::string_view name) {
  Expander expander;
  expander.expand(text, name);
  return expander.take();
}

}  // namespace forge::codegen

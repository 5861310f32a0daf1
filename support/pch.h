// Headers that most files include, precompiled for the libraries with ten files and more (-Dprecompile=true; off by
// default). On g++ 12 it takes 2.3 s a library to make and saves 0.5 s of about 2 s a file, so small libraries do
// without. Files still include what they use: the sanitizer build of tools/check has no precompiled headers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/tokenizer/string_table.h"

#include <fmt/core.h>

#include <bit>
#include <limits>

#include "support/error.h"
#include "support/os/random.h"

namespace forge::text {

const std::uint64_t kHashSeed = random_number();

StringList::StringList(const loader::GgufValue& array, std::string_view key) : base_(array.bytes.data()) {
  const auto strings = array.to_strings();
  if (!strings)
    throw Error(ErrorCode::kTokenizer, fmt::format("metadata key '{}' holds {}", key, array.describe()),
                "an array of strings is expected", "convert the model again with a current converter");
  if (strings->size() > std::numeric_limits<std::int32_t>::max() ||
      array.bytes.size() > std::numeric_limits<std::uint32_t>::max())
    throw Error(ErrorCode::kTokenizer, fmt::format("metadata key '{}' holds {}", key, array.describe()),
                "that is more than any tokenizer has", "the file is damaged; download or convert it again");
  offsets_.resize(strings->size());
  std::uint64_t at = 0;
  for (auto& offset : offsets_) {
    offset = static_cast<std::uint32_t>(at);
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, base_ + at, sizeof bytes);
    at += sizeof bytes + bytes;
  }
}

HashSlots::HashSlots(std::size_t entries)
    : mask_(std::bit_ceil(entries * 2 + 2) - 1), slots_(static_cast<std::size_t>(mask_) + 1) {}

}  // namespace forge::text

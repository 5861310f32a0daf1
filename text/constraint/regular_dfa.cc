#include "text/constraint/regular_dfa.h"

namespace forge::text::constraint {

Expr RegularDfa::compute(Expr state, std::uint8_t byte) {
  pool_.spend();
  auto next = pool_.derivative(state, byte);
  if (next != RegularPool::kEmpty && !pool_.is_plain(next) && pool_.is_empty(next)) next = RegularPool::kEmpty;
  // Calls that were expanded may tell bytes apart that the table has in one class.
  if (pool_.byte_classes().representative.size() != classes_.representative.size()) {
    classes_ = pool_.byte_classes();
    rows_.clear();
    table_.clear();
  }
  const auto width = classes_.representative.size();
  if (table_.size() + width > kTableMax) {
    rows_.clear();
    table_.clear();
  }
  if (state >= rows_.size()) rows_.resize(pool_.size(), kNoRow);
  if (rows_[state] == kNoRow) {
    rows_[state] = static_cast<std::uint32_t>(table_.size());
    table_.resize(table_.size() + width, kUnknown);
  }
  table_[rows_[state] + classes_.of[byte]] = next;
  return next;
}

}  // namespace forge::text::constraint

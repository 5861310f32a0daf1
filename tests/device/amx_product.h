#pragma once
// The tile products that amx_check tests.

namespace forge::cpu {

enum class Product { kSignedUnsigned, kSignedSigned, kBf16 };

}  // namespace forge::cpu

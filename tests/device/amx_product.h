#pragma once
// Which product of tiles amx_check asks for.

namespace forge::cpu {

enum class Product { kSignedUnsigned, kSignedSigned, kBf16 };

}  // namespace forge::cpu

// The error class: its one-line format, escaping of hostile text, and the documented exit statuses.
#include "support/error.h"

#include <catch2/catch.hpp>

using forge::Error;
using forge::ErrorCode;

TEST_CASE("an error is one line: code, context chain, what, why, fix") {
  const Error error(ErrorCode::kModelFormat, "not a GGUF file", "magic is 'PK'", "give a .gguf file");
  CHECK(error.within("reading a.gguf").within("compiling").line() ==
        "error[model-format]: compiling: reading a.gguf: not a GGUF file: magic is 'PK'; give a .gguf file");
  CHECK(error.exit_status() == 3);
}

TEST_CASE("hostile text in an error cannot break the line or the terminal") {
  const Error error(ErrorCode::kUsage, "bad flag \x1b[31m\n\xff", "", "");
  CHECK(error.line() == "error[usage]: bad flag \\x1b[31m\\x0a\\xff");
  CHECK(Error(ErrorCode::kUsage, std::string(100000, 'x')).line().size() < 700);
  // Overlong forms, surrogates and values beyond U+10FFFF are not characters.
  CHECK(forge::printable("\xc3\xa9 \xe0\x80\xaf \xed\xa0\x80 \xf4\x90\x80\x80") ==
        "\xc3\xa9 \\xe0\\x80\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80");
}

TEST_CASE("exit statuses equal the documented ones") {
  CHECK(Error(ErrorCode::kUsage, "").exit_status() == 2);
  CHECK(Error(ErrorCode::kDevice, "").exit_status() == 4);
  CHECK(Error(ErrorCode::kMemory, "").exit_status() == 5);
  CHECK(Error(ErrorCode::kInternal, "").exit_status() == 1);
  CHECK(Error(ErrorCode::kPlan, "").exit_status() == 3);
}

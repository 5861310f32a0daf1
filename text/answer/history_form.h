#pragma once
// What a chat template needs of a conversation's history to print all of it.

#include <string>

namespace forge::text {

struct HistoryForm {
  bool shows_tools = true;    ///< prints the tools' names
  bool shows_calls = true;    ///< prints the calls of an answer
  bool shows_results = true;  ///< prints messages of the role "tool"
  bool shows_system = true;   ///< prints a system message
  bool knows_developer = false;
  bool arguments_as_text = false;    ///< of calls, as a JSON string; else as an object
  bool null_content = false;         ///< calls are printed only where the content is null
  bool content_beside_calls = true;  ///< prints the content of an answer that also has calls
  bool short_ids = false;            ///< ids of calls must be nine letters or digits
  std::string reasoning;             ///< the member of a message that is printed as reasoning; empty: none is
};

}  // namespace forge::text

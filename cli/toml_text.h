// TOML text made safe for its parser.
#pragma once

#include <string>
#include <string_view>

namespace roundoff::cli {

// Checks that `text` is a list of settings, key = value by the grammar of TOML 1.0, and returns it
// in the characters that toml++ 3.3 handles: comments go, letters beyond ASCII in "..." become
// escapes, lines stay. That parser meets much that is malformed with assumptions that its compiler
// trusts, in place of errors; a file that a person wrote by hand must not reach those. Throws
// Error, naming `origin` and the line, for what is not TOML, and UsageError for what TOML has and
// settings have not: tables, dates and times.
std::string toml_for_parser(std::string_view text, std::string_view origin);

}  // namespace roundoff::cli

// Text on its way into HTML, LaTeX, gnuplot and file names. A study's words may hold what a person
// typed (a data set's path), so everything is escaped.
#pragma once

#include <string>
#include <string_view>

namespace roundoff::study {

// UTF-8 as it is; bytes that are none become '?', control characters a space, so that the result
// is one line that XML and HTML allow.
std::string clean(std::string_view text);
// For element text and for attribute values in double or single quotes.
std::string html(std::string_view text);
// For LaTeX outside of math; a few symbols that reports use (such as a minus or plus-minus sign)
// become commands, what LaTeX has no name for in plain fonts stays UTF-8.
std::string tex(std::string_view text);
// For a BibTeX field in braces: unbalanced braces are dropped.
std::string bib(std::string_view text);
// A single-quoted gnuplot string: nothing in it is expanded.
std::string gnuplot_string(std::string_view text);
// Lower case letters, digits and single hyphens; `fallback` where nothing is left.
std::string file_name(std::string_view text, std::string_view fallback);
// One word of a shell's line, quoted where it needs to be.
std::string shell_word(std::string_view text);

}  // namespace roundoff::study

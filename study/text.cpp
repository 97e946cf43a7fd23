#include "study/text.h"

#include <cctype>
#include <utility>

namespace roundoff::study {

namespace {

unsigned char byte(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

// Length of the well-formed sequence at `at` (Unicode 15, table 3-7), 0 where there is none.
std::size_t sequence(std::string_view text, std::size_t at) {
  const unsigned char a = byte(text, at);
  const auto tail = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    const unsigned char b = byte(text, at + i);
    return b >= low && b <= high;
  };
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return tail(1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    const unsigned low = a == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = a == 0xED ? 0x9F : 0xBF;
    return tail(1, low, high) && tail(2) ? 3 : 0;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    const unsigned low = a == 0xF0 ? 0x90 : 0x80;
    const unsigned high = a == 0xF4 ? 0x8F : 0xBF;
    return tail(1, low, high) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

bool plain(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

}  // namespace

std::string clean(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t n = sequence(text, i);
    const unsigned char a = byte(text, i);
    // C1 control characters are C2 80 to C2 9F.
    const bool control = a < 0x20 || a == 0x7F || (n == 2 && a == 0xC2 && byte(text, i + 1) < 0xA0);
    if (n == 0) {
      out += '?';
    } else if (control) {
      out += ' ';
    } else {
      out += text.substr(i, n);
    }
    i += n == 0 ? 1 : n;
  }
  return out;
}

std::string html(std::string_view text) {
  std::string out;
  for (const char c : clean(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string tex(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kCommands[] = {
      {"\\", "\\textbackslash{}"}, {"~", "\\textasciitilde{}"}, {"^", "\\textasciicircum{}"},
      {"<", "\\textless{}"},       {">", "\\textgreater{}"},    {"|", "\\textbar{}"},
      {"\"", "\\textquotedbl{}"},  {"\u2212", "$-$"},           {"\u00b1", "$\\pm$"},
      {"\u00d7", "$\\times$"},     {"\u2264", "$\\le$"},        {"\u2265", "$\\ge$"},
      {"\u2248", "$\\approx$"},    {"\u00b7", "$\\cdot$"},      {"\u2013", "--"},
  };
  const std::string line = clean(text);
  std::string out;
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t n = sequence(line, i);
    const std::string_view one = std::string_view(line).substr(i, n);
    i += n;
    bool done = false;
    for (const auto& [from, to] : kCommands)
      if (one == from) {
        out += to;
        done = true;
        break;
      }
    if (done) continue;
    if (one.find_first_of("&%$#_{}") != std::string_view::npos) out += '\\';
    out += one;
  }
  return out;
}

std::string bib(std::string_view text) {
  const std::string line = clean(text);
  int depth = 0;
  bool balanced = true;
  for (const char c : line) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    balanced = balanced && depth >= 0;
  }
  balanced = balanced && depth == 0;
  std::string out;
  for (const char c : line) {
    if (!balanced && (c == '{' || c == '}')) continue;
    if (c == '&' || c == '%' || c == '#') out += '\\';
    out += c;
  }
  return out;
}

std::string gnuplot_string(std::string_view text) {
  std::string out = "'";
  for (const char c : clean(text)) {
    if (c == '\'') out += '\'';
    out += c;
  }
  return out + '\'';
}

std::string file_name(std::string_view text, std::string_view fallback) {
  std::string out;
  for (const char c : text) {
    if (plain(c)) {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
    if (out.size() >= 60) break;
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? std::string(fallback) : out;
}

std::string shell_word(std::string_view text) {
  bool needed = text.empty();
  for (const char c : text)
    needed =
        needed || (!plain(c) && std::string_view("-_./:,=+@%").find(c) == std::string_view::npos);
  if (!needed) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + '\'';
}

}  // namespace roundoff::study

#include "cli/toml_text.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "kernels/base/check.h"

namespace roundoff::cli {

namespace {

constexpr int kMaxDepth = 8;  // of arrays in arrays

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_bare_key(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}

// Takes the digits of `base` from the front of `text`, single underscores between them allowed;
// false where there is none.
bool take_digits(std::string_view& text, int base) {
  const auto is = [&](std::size_t i) {
    if (i >= text.size()) return false;
    const char c = text[i];
    if (base == 16) return std::isxdigit(static_cast<unsigned char>(c)) != 0;
    return c >= '0' && c < '0' + base;
  };
  if (!is(0)) return false;
  std::size_t n = 1;
  while (is(n) || (n < text.size() && text[n] == '_' && is(n + 1))) ++n;
  text.remove_prefix(n);
  return true;
}

// A truth value or a number of TOML 1.0.
bool is_scalar(std::string_view text) {
  if (text == "true" || text == "false") return true;
  if (text.size() > 2 && text[0] == '0' && !is_digit(text[1])) {
    const int base = text[1] == 'x' ? 16 : text[1] == 'o' ? 8 : text[1] == 'b' ? 2 : 0;
    std::string_view digits = text.substr(2);
    if (base != 0) return take_digits(digits, base) && digits.empty();
  }
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) text.remove_prefix(1);
  if (text == "inf" || text == "nan") return true;
  if (text.size() > 1 && text[0] == '0' && (is_digit(text[1]) || text[1] == '_')) return false;
  if (!take_digits(text, 10)) return false;
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    if (!take_digits(text, 10)) return false;
  }
  if (!text.empty() && (text[0] == 'e' || text[0] == 'E')) {
    text.remove_prefix(1);
    if (!text.empty() && (text[0] == '+' || text[0] == '-')) text.remove_prefix(1);
    if (!take_digits(text, 10)) return false;
  }
  return text.empty();
}

// "1979-..." or "07:...".
bool is_date_or_time(std::string_view text) {
  std::size_t n = 0;
  while (n < text.size() && is_digit(text[n])) ++n;
  return n < text.size() && ((n == 4 && text[n] == '-') || (n == 2 && text[n] == ':'));
}

// Copies a file of "key = value" lines, by TOML 1.0's grammar for them.
class Reader {
 public:
  Reader(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

  std::string run() {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;  // a byte-order mark
    for (space_and_lines(); !done(); space_and_lines()) {
      key();
      copy();  // =
      spaces();
      value(0);
      spaces();
      comment();
      if (!done() && peek() != '\n' && peek() != '\r')
        refuse("the line's end expected after a value");
    }
    return std::move(out_);
  }

 private:
  bool done() const { return at_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail("config", origin_, " line ", line_, ": ", parts...);
  }

  [[noreturn]] void refuse_usage(std::string_view what) const {
    throw UsageError(concat("[config] ", origin_, " line ", line_, ": ", what));
  }

  // The next character, which must be one that TOML allows; its code point.
  std::uint32_t take() {
    const auto first = static_cast<unsigned char>(text_[at_]);
    if (first < 0x80) {
      if (first == '\n') {
        ++line_;
      } else if (first == '\r' ? peek(1) != '\n'
                               : (first < 0x20 && first != '\t') || first == 0x7F) {
        refuse("a control character");
      }
      ++at_;
      return first;
    }
    const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    std::uint32_t code = first & (0x7FU >> length);
    bool good = first >= 0xC2 && first <= 0xF4;
    for (std::size_t i = 1; i < length; ++i) {
      const auto next = static_cast<unsigned char>(peek(i));
      good = good && (next & 0xC0U) == 0x80;
      code = (code << 6) | (next & 0x3FU);
    }
    constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    good =
        good && code >= kSmallest[length] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    if (!good) refuse("not UTF-8");
    at_ += length;
    return code;
  }
  void copy() {
    const std::size_t from = at_;
    take();
    out_ += text_.substr(from, at_ - from);
  }
  void spaces() {
    while (peek() == ' ' || peek() == '\t') copy();
  }
  void comment() {
    if (peek() != '#') return;
    while (!done() && peek() != '\n' && (peek() != '\r' || peek(1) != '\n')) take();
  }
  void space_and_lines() {
    for (;;) {
      spaces();
      comment();
      if (peek() != '\n' && peek() != '\r') return;
      copy();
    }
  }

  // Up to the = that follows it.
  void key() {
    if (peek() == '[') refuse_usage("tables are no settings");
    bool any = false;
    for (; peek() != '='; any = true) {
      const char c = peek();
      if (c == '"' || c == '\'') {
        quoted(c);
      } else if (is_bare_key(c) || c == '.' || c == ' ' || c == '\t') {
        copy();
      } else {
        refuse(any ? "= expected after a key" : "a key expected");
      }
    }
    if (!any) refuse("a key expected");
  }

  void value(int depth) {
    const char c = peek();
    if (c == '"' || c == '\'') return quoted(c);
    if (c == '{') refuse_usage("tables are no settings");
    if (c == '[') return array(depth);
    const std::size_t length =
        std::min(text_.find_first_of(" \t\r\n,]}#='\"[{", at_), text_.size()) - at_;
    const std::string_view token = text_.substr(at_, length);
    if (token.empty()) refuse("a value expected");
    for (const std::size_t end = at_ + length; at_ < end;) copy();
    if (is_date_or_time(token)) refuse_usage("dates and times are no settings");
    if (!is_scalar(token)) refuse("'", token, "' is no value; text stands in quotes");
  }

  void array(int depth) {
    if (depth == kMaxDepth) refuse("arrays in arrays in arrays");
    copy();
    for (space_and_lines(); peek() != ']'; space_and_lines()) {
      value(depth + 1);
      space_and_lines();
      if (peek() != ',' && peek() != ']') refuse(", or ] expected");
      if (peek() == ',') copy();
    }
    copy();
  }

  std::size_t run_of(char quote) const {
    std::size_t n = 0;
    while (peek(n) == quote) ++n;
    return n;
  }
  void copy_many(std::size_t n) {
    for (; n > 0; --n) copy();
  }

  // Text between quotes, one or three on each side.
  void quoted(char quote) {
    const bool several_lines = run_of(quote) >= 3;
    copy_many(several_lines ? 3 : 1);
    while (!done()) {
      const char c = peek();
      if (c == quote) {
        const std::size_t n = run_of(quote);
        if (!several_lines) return copy();
        copy_many(std::min<std::size_t>(n, 5));  // up to two belong to the text
        if (n >= 3) return;
      } else if (c == '\n' && !several_lines) {
        break;
      } else if (quote == '"' && c == '\\') {
        if (static_cast<unsigned char>(peek(1)) >= 0x80) refuse("no escape is like this");
        copy();
        if (!done()) copy();
      } else if (quote == '"' && static_cast<unsigned char>(c) >= 0x80) {
        escape(take());
      } else {
        copy();
      }
    }
    refuse("text without its closing quote");
  }
  void escape(std::uint32_t code) {
    constexpr char kHex[] = "0123456789ABCDEF";
    out_ += "\\U";
    for (int shift = 28; shift >= 0; shift -= 4) out_ += kHex[(code >> shift) & 15U];
  }

  std::string_view text_;
  std::string_view origin_;
  std::string out_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::string toml_for_parser(std::string_view text, std::string_view origin) {
  return Reader(text, origin).run();
}

}  // namespace roundoff::cli

// Errors: one line that names the operation, what was wrong and what was expected.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace roundoff {

// Every error that Roundoff throws. what() reads "[operation] what, where, what was expected".
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A combination of settings that makes no sense (a program exits with status 2).
class UsageError : public Error {
 public:
  using Error::Error;
};

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

template <class... Parts>
[[noreturn]] void fail(std::string_view operation, const Parts&... parts) {
  throw Error(concat("[", operation, "] ", parts...));
}

}  // namespace roundoff

// The message's parts are only evaluated where the condition does not hold.
#define ROUNDOFF_CHECK(condition, operation, ...)                 \
  do {                                                            \
    if (!(condition)) ::roundoff::fail((operation), __VA_ARGS__); \
  } while (false)

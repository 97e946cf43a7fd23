// From an address in a kernel's code to its source line, where the program has line tables and was
// built with libdw; to the nearest symbol otherwise.
#pragma once

#include <map>
#include <memory>
#include <string>

namespace roundoff::simt {

struct SourcePlace {
  std::string function;  // may be empty
  std::string file;      // empty: no line is known
  int line = 0;
};

class SourceLines {
 public:
  SourceLines();
  ~SourceLines();
  SourceLines(const SourceLines&) = delete;
  SourceLines& operator=(const SourceLines&) = delete;

  // `code`: what a call returns to. Of calls that were inlined, the innermost one outside the
  // headers of the kernel language.
  const SourcePlace& find(const void* code);

 private:
  struct Tables;
  SourcePlace look_up(const void* code);
  std::unique_ptr<Tables> tables_;
  std::map<const void*, SourcePlace> known_;
};

}  // namespace roundoff::simt

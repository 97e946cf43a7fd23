// Where in a kernel's text a collective or an access stands. The emulator compares and prints it;
// on a GPU it is empty and costs nothing. The source position, not the return address: compilers
// duplicate calls, and lanes that took different copies of one call are not divergent.
#pragma once

namespace roundoff::simt {

#if defined(__CUDACC__)
struct Site {
  static constexpr __host__ __device__ Site here() { return {}; }
};
#else
struct Site {
  const char* file = "";
  int line = 0;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  friend constexpr bool operator==(const Site& a, const Site& b) {
    return a.line == b.line && a.file == b.file;
  }
};
#endif

}  // namespace roundoff::simt

// What the profiler counted: memory requests of warps, by kernel and source line. A request is one
// instruction of a warp: the accesses of its lanes from one place in the code, the n-th of each.
// The figures are a function of the kernel and its arguments, not of the schedule.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/simt/emulator/api.h"

namespace roundoff::simt {

struct RequestCounts {
  std::uint64_t requests = 0;
  std::uint64_t lanes = 0;  // that took part
  std::uint64_t bytes = 0;  // asked for by them
  // Global memory: 32-byte sectors touched, and how many the distinct bytes would fill.
  std::uint64_t sectors = 0, least_sectors = 0;
  // Shared memory: passes over its 32 banks of 4 bytes, and those that conflicts cost. Accesses of
  // 8 bytes go by half warps, of 16 bytes by quarters.
  std::uint64_t wavefronts = 0, excess_wavefronts = 0;

  ROUNDOFF_SIMT_API RequestCounts& operator+=(const RequestCounts& other);
};

enum class RequestKind : std::uint8_t {
  global_load,
  global_store,
  global_atomic,
  shared_load,
  shared_store,
  shared_atomic
};
ROUNDOFF_SIMT_API const char* name(RequestKind kind);

struct LineProfile {
  std::string kernel;
  std::string file;  // empty where no line table says; then `function` has symbol and offset
  int line = 0;
  std::string function;
  RequestKind kind = RequestKind::global_load;
  RequestCounts counts;
};

struct LaunchProfile {
  std::string kernel;
  RequestCounts global_loads, global_stores, global_atomics;
  RequestCounts shared_loads, shared_stores, shared_atomics;
};

struct Profile {
  std::vector<LaunchProfile> launches;  // in their order
  std::vector<LineProfile> lines;       // the costliest first

  // Sums over the lines of one kernel; over those of one source line where line is not 0.
  ROUNDOFF_SIMT_API RequestCounts sum(std::string_view kernel, RequestKind kind,
                                      int line = 0) const;
  // A table of at most `top` lines.
  ROUNDOFF_SIMT_API void print(std::ostream& out, std::size_t top = 20) const;
};

}  // namespace roundoff::simt

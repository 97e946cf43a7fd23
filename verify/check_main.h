// A main() for people's own kernels. Their program takes
//
//   check   [KERNEL...] [--device sim|cuda|cpu] [--dtype fp16,...] [--cases quick|full] [--seed N]
//           [--schedules N] [--sanitize] [--replay K] [--json FILE|-]
//   replay  K [KERNEL...]      one schedule of the emulator, under the sanitizer
//   profile [KERNEL...]        on sim: requests, sectors, bank wavefronts, line by line
//   bench   [KERNEL...]        on cuda: milliseconds and bytes a second; on sim: what is counted
//   list
//
// and ends with 0 (done), 1 (a bound is broken, or a fault), 2 (wrong usage), 3 (failure),
// 77 (a device is absent). docs/check.md walks through one.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "verify/own_kernel.h"

namespace roundoff {

int check_main(int argc, const char* const* argv, const std::vector<OwnKernel>& kernels);
// The same with its arguments (without the program's name) and streams.
int check_main(const std::vector<std::string>& arguments, const std::vector<OwnKernel>& kernels,
               std::ostream& out, std::ostream& err);

}  // namespace roundoff

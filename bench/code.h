// What nvcc made of the kernels that a row ran, read from the program's own file: registers, local
// memory, instructions of the innermost loop, and how many blocks a multiprocessor holds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/evidence/kernel_code.h"
#include "bench/result.h"

namespace roundoff::bench {

// One launch of a row.
struct LaunchedKernel {
  std::string name;  // of the kernel's function, "softmax_rows"
  int threads = 0;   // of a block
  int shared = 0;    // bytes of dynamic shared memory
};

class CodeCensus {
 public:
  // Of the running program; empty where the build has no CUDA side.
  static const CodeCensus& of_program();
  explicit CodeCensus(std::vector<evidence::KernelCode> kernels) : kernels_(std::move(kernels)) {}

  bool empty() const { return kernels_.empty(); }
  // Adds what is known of the first launch whose kernel is found, over all its instantiations for
  // that architecture: which of them runs is not known here.
  void add_to(Row& row, const std::vector<LaunchedKernel>& launches, int capability) const;

 private:
  std::vector<evidence::KernelCode> kernels_;
};

}  // namespace roundoff::bench

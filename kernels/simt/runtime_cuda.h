// CUDA's own calls, for the few files that make them (builds with CUDA only).
#pragma once

#include <cuda_runtime.h>

#include "kernels/base/check.h"

namespace roundoff::simt {

// A CUDA call that failed. what() names the call and CUDA's reason.
class CudaError : public Error {
 public:
  CudaError(cudaError_t code, const char* call)
      : Error(concat("[cuda] ", call, ": ", cudaGetErrorString(code), " (", cudaGetErrorName(code),
                     ")")),
        code_(code) {}
  cudaError_t code() const { return code_; }

 private:
  cudaError_t code_;
};

// The address of a function of the driver, looked up when it is needed, so that nothing links to
// libcuda and a program starts where there is none. `version` is the CUDA version whose interface
// is meant, 12000 for example. Throws where the driver has no such function.
void* driver_entry_point(const char* name, unsigned version);

}  // namespace roundoff::simt

// Calls a function of the CUDA runtime; throws CudaError, naming the call, where it fails.
#define ROUNDOFF_CUDA_CHECK(call)                                                   \
  do {                                                                              \
    if (const cudaError_t roundoff_status = (call); roundoff_status != cudaSuccess) \
      throw ::roundoff::simt::CudaError(roundoff_status, #call);                    \
  } while (false)

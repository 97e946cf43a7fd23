// The little that these tests need of the CUDA runtime.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>
#include <vector>

#include "kernels/base/check.h"

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) roundoff::fail("cuda", what, ": ", cudaGetErrorString(status));
}

template <class T>
class Array {
 public:
  explicit Array(std::size_t n) : n_(n) { check(cudaMalloc(&data_, n * sizeof(T)), "allocation"); }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() { return static_cast<T*>(data_); }
  void fill(const std::vector<T>& from) {
    check(cudaMemcpy(data_, from.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  std::vector<T> read() const {
    std::vector<T> to(n_);
    check(cudaMemcpy(to.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost), "copy");
    return to;
  }

 private:
  void* data_ = nullptr;
  std::size_t n_;
};

constexpr unsigned kBlock = 256;

// Runs one thread for each of n elements, in blocks of kBlock, and waits.
template <class... Parameters>
void launch(void (*kernel)(Parameters...), unsigned n,
            std::type_identity_t<Parameters>... arguments) {
  if (n == 0) return;
  void* pointers[] = {&arguments...};
  check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3((n + kBlock - 1) / kBlock),
                         dim3(kBlock), pointers, 0, nullptr),
        "launch");
  check(cudaDeviceSynchronize(), "kernel");
}

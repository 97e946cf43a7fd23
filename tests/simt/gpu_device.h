// A GPU for the tests that the emulator's devices run too (sim_device.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/base/target.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/runtime.h"
#include "tests/skip.h"

namespace roundoff::simt_test {

// Device memory of a test lives as long as its device.
class GpuDevice {
 public:
  GpuDevice() : runtime_(simt::open(Device::cuda)), stream_(runtime_) {}

  template <class T>
  T* upload(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    buffers_.emplace_back(runtime_, bytes);
    if (bytes != 0) stream_.upload(buffers_.back().data(), values.data(), bytes);
    return buffers_.back().as<T>();
  }
  template <class T>
  std::vector<T> download(const T* p, std::size_t n) {
    std::vector<T> values(n);
    if (n != 0) stream_.download(values.data(), p, n * sizeof(T));
    return values;
  }
  Cuda cuda() { return {stream_.ref(), nullptr}; }
  bool has_sm_90a() const { return runtime_->description().capability == 90; }
  // The modelled GPU that this one is; fp32 where it is none of them.
  Accumulator tensor_core() const {
    const int capability = runtime_->description().capability;
    if (capability == 80) return Accumulator::a100;
    return capability == 90 ? Accumulator::h100 : Accumulator::fp32;
  }

 private:
  std::shared_ptr<simt::Runtime> runtime_;
  simt::Stream stream_;
  std::vector<simt::DeviceBuffer> buffers_;
};

// Whether a GPU is there that has what a test needs; else the test is skipped. It is asked for
// every launch, and says why once.
inline bool gpu_is_there(Architecture needs) {
  static const std::string refusal = simt::refusal(Device::cuda);
  static const bool has_sm_90a = refusal.empty() && GpuDevice().has_sm_90a();
  static bool said = false;
  if (refusal.empty() && (needs == Architecture::any || has_sm_90a)) return true;
  if (!said) skip_test(refusal.empty() ? "needs a GPU of sm_90a" : refusal);
  said = true;
  return false;
}

}  // namespace roundoff::simt_test

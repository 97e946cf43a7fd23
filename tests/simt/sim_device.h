// A device for a test of kernels, and what it takes to run the same test on every build of a
// kernel: on the emulator under many schedules or, where ROUNDOFF_TEST_ON_GPU is defined, on a GPU.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/target.h"
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/stream.h"
#if defined(ROUNDOFF_TEST_ON_GPU)
#include "tests/simt/gpu_device.h"
#endif

namespace roundoff::simt_test {

inline constexpr std::uint64_t kSchedules = 16;

// Device memory of a test lives as long as its device.
class SimDevice {
 public:
  explicit SimDevice(const simt::Config& config = {}) : emulator(config), stream(emulator) {}

  template <class T>
  T* upload(const std::vector<T>& values) {
    void* p = emulator.allocate(values.size() * sizeof(T));
    emulator.copy_in(p, values.data(), values.size() * sizeof(T));
    return static_cast<T*>(p);
  }
  template <class T>
  std::vector<T> download(const T* p, std::size_t n) {
    std::vector<T> values(n);
    emulator.copy_out(values.data(), p, n * sizeof(T));
    return values;
  }
  Sim sim() { return {{&stream}, nullptr}; }
  Checked checked() { return {{&stream}, nullptr}; }
  static constexpr bool has_sm_90a() { return true; }

  simt::Emulator emulator;
  simt::SimStream stream;
};

inline simt::TensorCoreModel model_of(Accumulator gpu) {
  if (gpu == Accumulator::v100) return simt::TensorCoreModel::v100;
  if (gpu == Accumulator::a100) return simt::TensorCoreModel::a100;
  return gpu == Accumulator::h100 ? simt::TensorCoreModel::h100 : simt::TensorCoreModel::fp32;
}

#if defined(ROUNDOFF_TEST_ON_GPU)

inline constexpr bool kOnGpu = true;

// test(device, target), on the GPU; skipped where there is none, or an older one.
template <class F>
void under_schedules(F&& test, Architecture needs = Architecture::any) {
  if (!gpu_is_there(needs)) return;
  GpuDevice device;
  test(device, device.cuda());
}
template <class F>
void on_device(const simt::Config&, F&& test, Architecture needs = Architecture::any) {
  under_schedules(test, needs);
}
// On a GPU of that kind; nowhere else. The emulator's plain arithmetic is no GPU's.
template <class F>
void with_arithmetic(Accumulator gpu, F&& test, Architecture needs = Architecture::any) {
  if (!gpu_is_there(needs)) return;
  GpuDevice device;
  if (device.tensor_core() == gpu) test(device, device.cuda());
}

#else

inline constexpr bool kOnGpu = false;

// test(device, target) on the fast kernels and on the instrumented ones, which the sanitizer
// watches, under every schedule.
template <class F>
void under_schedules(F&& test, Architecture = Architecture::any) {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    CAPTURE(k);
    SimDevice device(simt::with_schedule({}, k));
    test(device, device.sim());
#if ROUNDOFF_HAS_CHECKED
    simt::Config sanitized = simt::with_schedule({}, k);
    sanitized.sanitize = true;
    SimDevice watched(sanitized);
    test(watched, watched.checked());
#endif
  }
}
// On one device.
template <class F>
void on_device(const simt::Config& config, F&& test, Architecture = Architecture::any) {
  SimDevice device(config);
  test(device, device.sim());
}
// With the arithmetic of that GPU's tensor cores; fp32: chains of fused multiply-adds.
template <class F>
void with_arithmetic(Accumulator gpu, F&& test, Architecture needs = Architecture::any) {
  simt::Config config;
  config.tensor_core = model_of(gpu);
  on_device(config, test, needs);
}

#endif

// The message of the fault that `run(device, target)` ends with; empty: none.
template <class F>
std::string fault_of(const simt::Config& config, F&& run) {
  SimDevice device(config);
  try {
    run(device, device.sim());
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace roundoff::simt_test

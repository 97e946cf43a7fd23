// A simulated device for a test, and what it takes to run the same test on every build of a kernel.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/target.h"
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/stream.h"

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

  simt::Emulator emulator;
  simt::SimStream stream;
};

// test(device, target) on the fast kernels and on the instrumented ones, which the sanitizer watches,
// under every schedule.
template <class F>
void under_schedules(F&& test, simt::Config config = {}) {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    CAPTURE(k);
    SimDevice device(simt::with_schedule(config, k));
    test(device, device.sim());
#if ROUNDOFF_HAS_CHECKED
    simt::Config sanitized = simt::with_schedule(config, k);
    sanitized.sanitize = true;
    SimDevice watched(sanitized);
    test(watched, watched.checked());
#endif
  }
}

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

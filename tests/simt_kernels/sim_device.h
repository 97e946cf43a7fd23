// A simulated device for tests of kernels, and arrays (tests/kernels/array.h) that lie in its
// memory with their guards and their alignment.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/stream.h"
#include "tests/kernels/array.h"

namespace roundoff::test {

// A test that is built with ROUNDOFF_TEST_CHECKED runs the instrumented kernels, and the sanitizer
// watches them.
#if defined(ROUNDOFF_TEST_CHECKED)
using SimTarget = Checked;
inline constexpr bool kSanitized = true;
// How many schedules a kernel is tried under.
inline constexpr std::uint64_t kSchedules = 16;
#else
using SimTarget = Sim;
inline constexpr bool kSanitized = false;
inline constexpr std::uint64_t kSchedules = 4;
#endif

// Workspace of kernels in a simulated device's memory: every piece an allocation of its own, so
// that one that is left is told.
class SimDevice;
class SimScratch : public Scratch {
 public:
  explicit SimScratch(simt::Emulator& emulator)
      : Scratch(std::make_shared<Source>(emulator), true) {}
  explicit SimScratch(SimDevice& device);

 private:
  struct Source : ScratchSource {
    explicit Source(simt::Emulator& device) : emulator(device) {}
    void* allocate(std::size_t bytes) override { return emulator.allocate(bytes); }
    void free(void* memory) noexcept override { emulator.free(memory); }
    simt::Emulator& emulator;
  };
};

class SimDevice {
 public:
  // `schedule`: a number of simt::with_schedule's family.
  explicit SimDevice(std::uint64_t schedule = 0)
      : emulator_(simt::with_schedule({.sanitize = kSanitized}, schedule)), stream_(emulator_) {
    const DeviceErrors none;
    errors_ = static_cast<DeviceErrors*>(emulator_.allocate(sizeof(none)));
    emulator_.copy_in(errors_, &none, sizeof(none));
  }
  // Tests say `const auto sim = device.target();`.
  SimTarget target() { return {{&stream_}, errors_}; }
  simt::Emulator& emulator() { return emulator_; }
  Scratch& scratch() { return scratch_; }
  // What kernels reported since the last call.
  DeviceErrors take_errors() {
    DeviceErrors report;
    emulator_.copy_out(&report, errors_, sizeof(report));
    const DeviceErrors none;
    emulator_.copy_in(errors_, &none, sizeof(none));
    return report;
  }

 private:
  simt::Emulator emulator_;
  simt::SimStream stream_;
  SimScratch scratch_{emulator_};
  DeviceErrors* errors_ = nullptr;
};

inline SimScratch::SimScratch(SimDevice& device) : SimScratch(device.emulator()) {}

// The device's copy of a host array, made on construction; fetch() brings it back.
class Resident {
 public:
  Resident(SimDevice& device, Array& array) : Resident(device, &array, array) {}
  Resident(SimDevice& device, const Array& array) : Resident(device, nullptr, array) {}
  ~Resident() { device_.emulator().free(memory_); }
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  View view() const { return {static_cast<std::byte*>(memory_) + first_byte_, dtype_, shape_}; }
  operator ConstView() const { return view(); }
  ConstView operator*() const { return view(); }
  Out out(Write write = Write::overwrite) const { return {view(), write}; }
  void fetch() { device_.emulator().copy_out(array_->memory().data(), memory_, bytes_); }

 private:
  Resident(SimDevice& device, Array* to, const Array& array)
      : device_(device),
        array_(to),
        dtype_(array.dtype()),
        shape_(array.shape()),
        first_byte_(array.first_byte()),
        bytes_(array.memory().size()),
        memory_(device.emulator().allocate(bytes_)) {
    device.emulator().copy_in(memory_, array.memory().data(), bytes_);
  }

  SimDevice& device_;
  Array* array_;
  DType dtype_;
  Shape shape_;
  std::size_t first_byte_;
  std::size_t bytes_;
  void* memory_;
};

// `y` after f(out) on the device, out being its copy there.
template <class F>
Array on_device(SimDevice& device, Array y, F&& f, Write write = Write::overwrite) {
  Resident resident(device, y);
  f(resident.out(write));
  resident.fetch();
  return y;
}

// Values and guards alike.
inline bool same_bits(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         a.memory().size() == b.memory().size() &&
         std::memcmp(a.memory().data(), b.memory().data(), a.memory().size()) == 0;
}

}  // namespace roundoff::test

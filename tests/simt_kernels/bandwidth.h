// Kernels under the profiler: what they move, against what they have to move.
#pragma once

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <string_view>

#include "kernels/simt/emulator/profiler/profile.h"
#include "tests/simt_kernels/sim_device.h"

namespace roundoff::test {

inline constexpr double kMostTraffic = 1.02;  // of the minimum (kernels.md)
inline constexpr double kSector = 32;

inline double bytes_of(const ConstView& v) {
  return static_cast<double>(v.numel()) * static_cast<double>(size_of(v.dtype));
}

// What launches moved, in bytes: whole sectors.
struct Traffic {
  simt::RequestCounts loads, stores, shared_loads, shared_stores;
  std::size_t launches = 0;
  double read() const { return kSector * static_cast<double>(loads.sectors); }
  double written() const { return kSector * static_cast<double>(stores.sectors); }
  double moved() const { return read() + written(); }
  std::uint64_t excess() const {
    return shared_loads.excess_wavefronts + shared_stores.excess_wavefronts;
  }
  // Sectors beyond those that the requests' bytes fill.
  std::uint64_t wasted() const {
    return loads.sectors - loads.least_sectors + stores.sectors - stores.least_sectors;
  }
};

class Profiled {
 public:
  Profiled() { device.emulator().config.profile = true; }
  Checked target() { return {device.target().stream, device.target().errors}; }

  // Device memory of zeros, aligned as the allocator aligns it.
  View zeros(DType dtype, const Shape& shape) {
    const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
    void* p = device.emulator().allocate(bytes);
    device.emulator().fill(p, 0, bytes);
    return {p, dtype, shape};
  }

  // Of the launches of f() whose name begins with `kernel`.
  template <class F>
  Traffic traffic(F&& f, std::string_view kernel = "") {
    device.emulator().reset_profile();
    f();
    Traffic t;
    for (const simt::LaunchProfile& l : device.emulator().profile().launches) {
      if (!std::string_view(l.kernel).starts_with(kernel)) continue;
      t.loads += l.global_loads;
      t.stores += l.global_stores;
      t.shared_loads += l.shared_loads;
      t.shared_stores += l.shared_stores;
      ++t.launches;
    }
    return t;
  }

  // `minimum`: bytes that any kernel has to read and write. `launches`: how many it takes.
  template <class F>
  void expect_ideal(const char* what, double minimum, F&& f, std::size_t launches = 1) {
    const Traffic t = traffic(f);
    CAPTURE(std::string(what));
    CAPTURE(minimum);
    CAPTURE(t.moved());
    CHECK(t.launches == launches);
    CHECK(t.wasted() == 0);
    CHECK(t.moved() >= minimum);
    CHECK(t.moved() <= kMostTraffic * minimum);
    CHECK(t.excess() == 0);
    if (t.moved() > kMostTraffic * minimum || t.wasted() != 0 || t.excess() != 0) {
      std::ostringstream table;
      device.emulator().profile().print(table);
      MESSAGE(table.str());
    }
  }

  SimDevice device;
};

inline constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};

}  // namespace roundoff::test

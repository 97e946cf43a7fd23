// What a GPU does while it is measured: clocks, power, temperature, and what held its clock back.
// By NVIDIA's management library (NVML), opened at run time, which only asks and sets nothing. The
// functions are declared after its public documentation (versions 11 to 13).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/cuda/shared_library.h"

namespace roundoff::bench {

// One reading; a value that the driver does not tell is absent.
struct GpuReading {
  std::optional<double> sm_mhz, memory_mhz, watts, celsius;
  std::uint64_t throttled = 0;  // bits as NVML has them
};

// "software power cap, hardware slowdown"; empty for none. An idle GPU's low clock is no throttle.
std::string throttle_text(std::uint64_t bits);

class Nvml {
 public:
  // `bus_id` as CUDA gives it: "0000:3B:00.0".
  Nvml(std::span<const std::filesystem::path> folders, const std::string& bus_id,
       std::vector<std::string> names = default_names());
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  static std::vector<std::string> default_names();

  bool usable() const { return device_ != nullptr; }
  const std::string& why_not() const { return why_not_; }

  GpuReading read() const;
  // The highest clocks in MHz, and the power limit in watts.
  std::optional<double> max_sm_mhz() const;
  std::optional<double> max_memory_mhz() const;
  std::optional<double> power_limit() const;
  std::string driver() const;  // "580.159.03"

 private:
  using Device = void*;
  struct Functions {
    int (*init)();
    int (*shutdown)();
    const char* (*error_string)(int);
    int (*by_bus_id)(const char*, Device*);
    int (*clock)(Device, int kind, unsigned*);
    int (*max_clock)(Device, int kind, unsigned*);
    int (*power)(Device, unsigned* milliwatts);
    int (*power_limit)(Device, unsigned* milliwatts);
    int (*temperature)(Device, int sensor, unsigned*);
    int (*throttle_reasons)(Device, unsigned long long*);
    int (*driver_version)(char*, unsigned);
  };
  // What a function says, times a factor; absent where it says an error.
  template <class F, class... A>
  std::optional<double> ask(F function, double factor, A... arguments) const;

  SharedLibrary library_;
  Functions f_{};
  Device device_ = nullptr;
  bool started_ = false;
  std::string why_not_;
};

}  // namespace roundoff::bench

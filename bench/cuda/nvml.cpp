#include "bench/cuda/nvml.h"

#include "kernels/base/check.h"

namespace roundoff::bench {

namespace {

constexpr int kSm = 1, kMemory = 2;  // nvmlClockType_t
constexpr int kGpuSensor = 0;        // nvmlTemperatureSensors_t

struct Reason {
  std::uint64_t bit;
  const char* text;
};
// nvmlClocksEventReason...; 0x1 says that nothing runs.
constexpr Reason kReasons[] = {
    {0x2, "application clocks"}, {0x4, "software power cap"},      {0x8, "hardware slowdown"},
    {0x10, "sync boost"},        {0x20, "software thermal limit"}, {0x40, "hardware thermal limit"},
    {0x80, "power brake"},       {0x100, "display clocks"}};

}  // namespace

std::string throttle_text(std::uint64_t bits) {
  std::string text;
  for (const Reason& r : kReasons)
    if ((bits & r.bit) != 0) text += (text.empty() ? "" : ", ") + std::string(r.text);
  return text;
}

std::vector<std::string> Nvml::default_names() { return {"libnvidia-ml.so.1", "libnvidia-ml.so"}; }

Nvml::Nvml(std::span<const std::filesystem::path> folders, const std::string& bus_id,
           std::vector<std::string> names)
    : library_(SharedLibrary::open(names, folders)) {
  if (!library_.found()) {
    why_not_ = library_.why_not();
    return;
  }
  library_.get(f_.init, "nvmlInit_v2");
  library_.get(f_.shutdown, "nvmlShutdown");
  library_.get(f_.error_string, "nvmlErrorString");
  library_.get(f_.by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
  library_.get(f_.clock, "nvmlDeviceGetClockInfo");
  library_.get(f_.max_clock, "nvmlDeviceGetMaxClockInfo");
  library_.get(f_.power, "nvmlDeviceGetPowerUsage");
  library_.get(f_.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  library_.get(f_.temperature, "nvmlDeviceGetTemperature");
  library_.get(f_.driver_version, "nvmlSystemGetDriverVersion");
  // Version 12 gave it another name and kept the old one.
  library_.get_if_present(f_.throttle_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  if (f_.throttle_reasons == nullptr)
    library_.get_if_present(f_.throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  const auto failed = [&](const char* call, int status) {
    const char* said = f_.error_string(status);
    why_not_ = concat("NVML: ", call, " says ", said == nullptr ? "nothing" : said);
  };
  if (const int status = f_.init(); status != 0) {
    failed("nvmlInit_v2", status);
    return;
  }
  started_ = true;
  if (const int status = f_.by_bus_id(bus_id.c_str(), &device_); status != 0) {
    device_ = nullptr;
    failed("nvmlDeviceGetHandleByPciBusId_v2", status);
  }
}

Nvml::~Nvml() {
  if (started_) (void)f_.shutdown();
}

template <class F, class... A>
std::optional<double> Nvml::ask(F function, double factor, A... arguments) const {
  if (!usable()) return std::nullopt;
  unsigned value = 0;
  if (function(device_, arguments..., &value) != 0) return std::nullopt;
  return value * factor;
}

GpuReading Nvml::read() const {
  GpuReading r;
  if (!usable()) return r;
  r.sm_mhz = ask(f_.clock, 1, kSm);
  r.memory_mhz = ask(f_.clock, 1, kMemory);
  r.watts = ask(f_.power, 1e-3);
  r.celsius = ask(f_.temperature, 1, kGpuSensor);
  unsigned long long bits = 0;
  if (f_.throttle_reasons != nullptr && f_.throttle_reasons(device_, &bits) == 0)
    r.throttled = bits;
  return r;
}

std::optional<double> Nvml::max_sm_mhz() const { return ask(f_.max_clock, 1, kSm); }

std::optional<double> Nvml::max_memory_mhz() const { return ask(f_.max_clock, 1, kMemory); }

std::optional<double> Nvml::power_limit() const { return ask(f_.power_limit, 1e-3); }

std::string Nvml::driver() const {
  char text[96] = {};
  if (!started_ || f_.driver_version(text, sizeof(text)) != 0) return {};
  return text;
}

}  // namespace roundoff::bench

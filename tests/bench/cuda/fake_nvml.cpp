// A stand-in for NVML: one GPU, at 0000:01:00.0, that is held back by its power limit.
#include <cstring>
#include <string>

#include "tests/bench/cuda/fake_vendor.h"

FAKE_API int nvmlInit_v2() { return 0; }
FAKE_API int nvmlShutdown() { return 0; }
FAKE_API const char* nvmlErrorString(int) { return "FAKE_NOT_FOUND"; }
FAKE_API int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  static int gpu;
  *device = &gpu;
  return std::string(id) == "0000:01:00.0" ? 0 : 6;
}
FAKE_API int nvmlDeviceGetClockInfo(void*, int kind, unsigned* mhz) {
  *mhz = kind == 1 ? 1755 : 3201;
  return kind == 1 || kind == 2 ? 0 : 2;
}
FAKE_API int nvmlDeviceGetMaxClockInfo(void*, int kind, unsigned* mhz) {
  *mhz = kind == 1 ? 1980 : 3201;
  return 0;
}
FAKE_API int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 698500;
  return 0;
}
FAKE_API int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700000;
  return 0;
}
// As on a card without the sensor.
FAKE_API int nvmlDeviceGetTemperature(void*, int, unsigned*) { return 3; }
FAKE_API int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) {
  *bits = 0x5;
  return 0;
}
FAKE_API int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "580.0", size);
  return 0;
}

#include "kernels/simt/cuda_support.h"

#include "kernels/simt/runtime.h"

namespace roundoff::simt {

namespace {
constexpr const char* kWayOn = "; use --device sim (the same kernels, emulated) or --device cpu";

// 13000 reads 13.0.
std::string version(int v) { return concat(v / 1000, ".", v % 1000 / 10); }
}  // namespace

std::string cuda_refusal(const CudaFacts& f, int ordinal) {
  if (!f.built)
    return concat("this build has no CUDA side (configure it with the preset cuda)", kWayOn);
  if (f.driver_version == 0) return concat("no NVIDIA driver is installed on this machine", kWayOn);
  // Newer minor versions run on an older driver of the same major version.
  if (f.driver_version / 1000 < f.runtime_version / 1000)
    return concat("the NVIDIA driver is too old: it knows CUDA ", version(f.driver_version),
                  ", this build needs ", version(f.runtime_version / 1000 * 1000),
                  "; update the driver, or build with an older CUDA toolkit", kWayOn);
  if (!f.error.empty()) return concat("the NVIDIA driver reports: ", f.error, kWayOn);
  if (f.devices == 0) return concat("the NVIDIA driver sees no GPU", kWayOn);
  if (ordinal < 0 || ordinal >= f.devices)
    return concat("there is no GPU number ", ordinal, ", the driver sees ", f.devices, kWayOn);
  if (f.capability < kLeastCapability)
    return concat("GPU ", ordinal, " (", f.name, ") is an sm_", f.capability,
                  "; the kernels need sm_", kLeastCapability, " (A100, RTX 30) or later", kWayOn);
  return {};
}

#if !defined(ROUNDOFF_HAS_CUDA_RUNTIME)
CudaFacts cuda_facts(int) { return {}; }

GpuLimits gpu_limits(int) { throw DeviceAbsent("[runtime] " + cuda_refusal(CudaFacts{})); }

std::shared_ptr<Runtime> open_cuda(int) {
  throw DeviceAbsent("[runtime] " + cuda_refusal(CudaFacts{}));
}
#endif

}  // namespace roundoff::simt

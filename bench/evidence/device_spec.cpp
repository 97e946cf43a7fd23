#include "bench/evidence/device_spec.h"

#include <algorithm>
#include <string>

#include "kernels/base/check.h"

namespace roundoff::evidence {
namespace {

// Compute capability 8.0 and 9.0. Shared memory: 164 KB and 228 KB, of which a block may have all
// but the 1 KB that is the system's.
constexpr SmLimits kSm80{.threads = 2048,
                         .blocks = 32,
                         .registers = 65536,
                         .registers_per_thread = 255,
                         .shared = 164 * 1024,
                         .shared_per_block = 163 * 1024,
                         .shared_reserved = 1024,
                         .register_unit = 256,
                         .shared_unit = 128,
                         .partitions = 4};
constexpr SmLimits kSm90{.threads = 2048,
                         .blocks = 32,
                         .registers = 65536,
                         .registers_per_thread = 255,
                         .shared = 228 * 1024,
                         .shared_per_block = 227 * 1024,
                         .shared_reserved = 1024,
                         .register_unit = 256,
                         .shared_unit = 128,
                         .partitions = 4};

constexpr DeviceSpec kDevices[] = {
    {.name = "A100",
     .title = "A100 SXM4 80 GB",
     .architecture = 80,
     // NVIDIA A100 datasheet and architecture whitepaper: 108 multiprocessors, 1410 MHz, 312
     // TFLOP/s dense fp16 and bf16, 156 tf32, 19.5 fp32, 9.7 fp64, 2039 GB/s, 40 MB of L2.
     .sms = 108,
     .clock = 1.410e9,
     .tensor_16bit = 2048,
     .tensor_tf32 = 1024,
     .fma_fp32 = 128,
     .fma_fp64 = 64,
     .memory_bandwidth = 2.039e12,
     // The share of the stated bandwidth that an H200 sustains (below); assumed to hold here.
     .copy_bandwidth = 1.83e12,
     // No public figure below the clock's: this GPU keeps its clock (chipsandcheese.com, "Nvidia's
     // H100", saw 1410 MHz under load).
     .sustained_16bit = 312e12,
     .l2_bytes = 40.0 * (1 << 20),
     // Whitepaper: 5120 B a clock from L2 for the whole GPU.
     .l2_bytes_per_clock = 5120.0 / 108,
     .shared_bytes_per_clock = 128,
     .mma_sync_share = 1},
    {.name = "H100",
     .title = "H100 SXM5 80 GB",
     .architecture = 90,
     // NVIDIA H100 datasheet and architecture whitepaper: 132 multiprocessors, 989 TFLOP/s dense
     // fp16 and bf16 (at 1830 MHz), 67 fp32 and 34 fp64 (at 1980 MHz), 3.35 TB/s, 50 MB of L2.
     .sms = 132,
     .clock = 1.980e9,
     .tensor_16bit = 4096,
     .tensor_tf32 = 2048,
     .fma_fp32 = 256,
     .fma_fp64 = 128,
     .memory_bandwidth = 3.35e12,
     // 90% of the stated bandwidth (QuACK's softmax and copies).
     .copy_bandwidth = 3.0e12,
     // 798 TFLOP/s by cuBLAS and 808 by fast.cu, 8192^3 bf16, normal data (README of fast.cu).
     .sustained_16bit = 810e12,
     .l2_bytes = 50.0 * (1 << 20),
     // A tile of 128 x 256 without multicast takes 48 B a clock, about what L2 gives (fast.cu
     // gained 3% by multicast).
     .l2_bytes_per_clock = 48,
     .shared_bytes_per_clock = 128,
     // mma.sync reaches 62% to 65% of wgmma (Luo et al., "Benchmarking and Dissecting the Nvidia
     // Hopper GPU Architecture via Microbenchmarking", arXiv 2402.13499).
     .mma_sync_share = 0.63},
    {.name = "H200",
     .title = "H200 SXM 141 GB",
     .architecture = 90,
     // NVIDIA H200 datasheet: the H100's chip with 4.8 TB/s.
     .sms = 132,
     .clock = 1.980e9,
     .tensor_16bit = 4096,
     .tensor_tf32 = 2048,
     .fma_fp32 = 256,
     .fma_fp64 = 128,
     .memory_bandwidth = 4.8e12,
     .copy_bandwidth = 4.3e12,   // public measurements of copies
     .sustained_16bit = 800e12,  // public measurements on random data, power-limited
     .l2_bytes = 50.0 * (1 << 20),
     .l2_bytes_per_clock = 48,
     .shared_bytes_per_clock = 128,
     .mma_sync_share = 0.63},
};

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

}  // namespace

const SmLimits& sm_limits(int architecture) {
  ROUNDOFF_CHECK(architecture == 80 || architecture == 90, "evidence", "limits of sm_",
                 architecture, " are not known, expected sm_80 or sm_90");
  return architecture == 80 ? kSm80 : kSm90;
}

std::string_view name(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::fp16:
      return "fp16";
    case Arithmetic::bf16:
      return "bf16";
    case Arithmetic::tf32:
      return "tf32";
    case Arithmetic::fp32:
      return "fp32";
    case Arithmetic::fp64:
      return "fp64";
  }
  return "?";
}

double DeviceSpec::rate(Arithmetic arithmetic) const {
  double per_clock = fma_fp64;
  switch (arithmetic) {
    case Arithmetic::fp16:
    case Arithmetic::bf16:
      per_clock = tensor_16bit;
      break;
    case Arithmetic::tf32:
      per_clock = tensor_tf32;
      break;
    case Arithmetic::fp32:
      per_clock = fma_fp32;
      break;
    case Arithmetic::fp64:
      break;
  }
  return per_clock * sms * clock;
}

std::span<const DeviceSpec> device_specs() { return kDevices; }

const DeviceSpec& device_spec(std::string_view name) {
  const std::string wanted = upper(name);
  std::string known;
  for (const DeviceSpec& device : kDevices) {
    if (device.name == wanted) return device;
    known += known.empty() ? "" : ", ";
    known += device.name;
  }
  fail("evidence", "no figures of a GPU \"", name, "\", expected one of ", known);
}

Floor roofline_floor(const DeviceSpec& device, Arithmetic arithmetic, double operations,
                     double bytes) {
  const double compute = operations / device.rate(arithmetic);
  const double memory = bytes / device.memory_bandwidth;
  return {std::max(compute, memory), compute, memory};
}

}  // namespace roundoff::evidence

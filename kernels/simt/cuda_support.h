// Whether `cuda` can be used in this build and on this machine, and if not, why and what to do.
#pragma once

#include <memory>
#include <string>

namespace roundoff::simt {

class Runtime;

// What is found when a program asks for a GPU.
struct CudaFacts {
  bool built = false;       // this build has the CUDA side
  int runtime_version = 0;  // CUDA's, that the build was made with: 1000 major + 10 minor
  int driver_version = 0;   // the newest CUDA that the driver knows; 0: no driver
  std::string error = {};   // of the runtime, when it was asked for devices; empty: none
  int devices = 0;
  int capability = 0;     // of the device that would be used: 10 major + minor
  std::string name = {};  // of that device
};

// The oldest GPUs whose instructions the kernels are compiled for.
inline constexpr int kLeastCapability = 80;

// What a GPU's maker states of it, as the driver tells; 0 where it does not.
struct GpuLimits {
  int capability = 0;  // 10 major + minor
  int multiprocessors = 0;
  double l2_bytes = 0;
  double clock = 0;             // Hz, the multiprocessors' highest
  double memory_bandwidth = 0;  // bytes a second, by the memory's clock and width
  double free_memory = 0;       // bytes, now
  std::string bus_id = {};      // "0000:3B:00.0"
};
// Of an opened GPU. Throws in a build without CUDA.
GpuLimits gpu_limits(int ordinal);

// Looks for the facts of device `ordinal`. Never throws; a missing driver or GPU is a fact.
CudaFacts cuda_facts(int ordinal = 0);
// Empty where cuda can be used.
std::string cuda_refusal(const CudaFacts& facts, int ordinal = 0);

// Throws DeviceAbsent in a build without CUDA.
std::shared_ptr<Runtime> open_cuda(int ordinal);

}  // namespace roundoff::simt

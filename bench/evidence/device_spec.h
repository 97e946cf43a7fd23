// The GPUs that predictions are made for: what their makers state, and two sustained figures that
// others measured. Nothing here was measured by this project.
#pragma once

#include <span>
#include <string_view>

namespace roundoff::evidence {

// What one multiprocessor can hold. Source: CUDA C++ Programming Guide, "Technical Specifications
// per Compute Capability"; the units of allocation are those of the toolkit's cuda_occupancy.h.
struct SmLimits {
  int threads;               // resident threads
  int blocks;                // resident blocks
  int registers;             // 32-bit registers, also the most of one block
  int registers_per_thread;  // most of one thread
  int shared;                // bytes of shared memory
  int shared_per_block;      // most of one block, static and dynamic together
  int shared_reserved;       // bytes that the system takes of every block
  int register_unit;         // registers are given to a warp in this unit
  int shared_unit;           // shared memory to a block in this one
  int partitions;            // of the register file, with one warp scheduler each
};

// Throws for an architecture other than 80 and 90.
const SmLimits& sm_limits(int architecture);

// Arithmetic whose rate a device has. fp16 and bf16 with fp32 sums, and tf32, are the tensor
// cores'; fp32 and fp64 are plain fused multiply-adds.
enum class Arithmetic : unsigned char { fp16, bf16, tf32, fp32, fp64 };
std::string_view name(Arithmetic arithmetic);

struct DeviceSpec {
  std::string_view name;   // "A100", "H100", "H200"
  std::string_view title;  // the exact product
  int architecture;        // 80 or 90
  int sms;
  double clock;  // Hz, the highest; rates by it are upper bounds

  // Operations (two a multiply-add) a clock and multiprocessor.
  double tensor_16bit;
  double tensor_tf32;
  double fma_fp32;
  double fma_fp64;

  double memory_bandwidth;  // bytes a second, stated by the maker
  double copy_bandwidth;    // bytes a second that a copy sustains
  // Operations a second that 16-bit products sustain on random data, where power limits the clock.
  double sustained_16bit;

  double l2_bytes;                // size of the L2 cache
  double l2_bytes_per_clock;      // L2 to one multiprocessor
  double shared_bytes_per_clock;  // shared memory of one multiprocessor
  double mma_sync_share;          // part of the tensor cores' rate that mma.sync can reach

  // Operations a second at the highest clock.
  double rate(Arithmetic arithmetic) const;
  const SmLimits& limits() const { return sm_limits(architecture); }
};

std::span<const DeviceSpec> device_specs();
// By name, in either case. Throws, listing the names, for another.
const DeviceSpec& device_spec(std::string_view name);

// The least time that a computation can take: the larger of operations / rate and
// bytes / memory_bandwidth, both upper bounds.
struct Floor {
  double seconds;
  double compute_seconds;
  double memory_seconds;
  bool memory_bound() const { return memory_seconds >= compute_seconds; }
};
Floor roofline_floor(const DeviceSpec& device, Arithmetic arithmetic, double operations,
                     double bytes);

}  // namespace roundoff::evidence

// How many blocks of a kernel one multiprocessor holds, by arithmetic on what ptxas gave it.
#pragma once

#include <string_view>

#include "bench/evidence/device_spec.h"

namespace roundoff::evidence {

struct BlockResources {
  int threads;     // of a block, 1 to 1024
  int registers;   // of a thread
  int shared = 0;  // bytes of a block, static and dynamic
};

enum class OccupancyLimit : unsigned char { none, threads, blocks, registers, shared };
std::string_view name(OccupancyLimit limit);  // "too large" for none

struct Occupancy {
  int blocks = 0;                               // on one multiprocessor; 0 where not even one fits
  int warps = 0;                                // of these blocks
  double share = 0;                             // of the warps that a multiprocessor can hold
  OccupancyLimit limit = OccupancyLimit::none;  // what allows no more; none where nothing fits
};

// Throws for a block of no threads or of more than 1024, and for negative resources.
Occupancy occupancy(const SmLimits& limits, const BlockResources& block);

}  // namespace roundoff::evidence

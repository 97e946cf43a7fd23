// Kernels about the order and the edges of memory: right ones that look like races, and wrong ones.
#pragma once

#include <cstdint>

#include "kernels/base/target.h"

namespace roundoff {

enum class Pattern : int {
  // right
  neighbouring_bytes,  // each thread has its own byte of shared and of global memory
  neighbouring_halves,
  volatile_flags,         // several threads store to one volatile word
  atomics_only,           // all blocks add to one word
  fences_in_all_threads,  // every thread fences, the barrier hands that on to one that adds
  release_chain,          // a block reads, by way of atomics, what an earlier one wrote
  warp_exchange,          // lanes read each other's words around __syncwarp
  partial_warp_exchange,  // half of the lanes do
  structure_copy,         // 24 bytes by one assignment
  own_memory,             // local arrays, whose address is taken
  reads_shared_by_all,    // every thread reads every word
  // wrong
  reads_unwritten,
  reads_unwritten_tail,   // the last byte of four
  overlapping_structure,  // 24 bytes over 24 bytes of another thread
  half_of_a_word,         // two threads, one writes the word, one half of it
  before_allocation,
  far_beyond,
  add_without_release,  // reads another block's data after an atomic without a fence
  misaligned_plain,
  write_after_all_read,
  host_memory,  // x is a pointer of the host
};

// One block of 64 threads for each of `blocks`; x: 64 words a block, written; scratch: 4096 bytes
// that nobody has written; count: two zeros.
template <DeviceTarget T>
void launch_pattern(T target, Pattern pattern, unsigned blocks, const std::uint32_t* x,
                    unsigned char* scratch, unsigned* count, std::uint32_t* y);

}  // namespace roundoff

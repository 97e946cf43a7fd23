// Kernels around mbarriers and clusters.
#pragma once

#include <cstdint>

#include "kernels/base/target.h"

namespace roundoff {

// How a consumer waits.
enum class WaitKind : int { try_parity, test_parity, try_state, test_state };

// One producer warp hands `steps` values to three consumer warps through a ring of two slots, each
// with a full and an empty barrier: y[warp][step] = x[step] + lane sums.
template <DeviceTarget T>
void launch_ring(T target, WaitKind kind, int steps, const int* x, int* y);

// counts by hand: arrive(count), expect_tx, complete_tx, inval and init again; out[0..7] are states
// of test_wait in between, each 0 or 1.
template <DeviceTarget T>
void launch_barrier_states(T target, int* out);

// Every block of a cluster writes into the next one's shared memory, and adds to block 0's counter:
// out[block] = {rank, size, value from the neighbour, sum over the cluster}.
template <DeviceTarget T>
void launch_cluster_exchange(T target, unsigned clusters, unsigned cluster, int* out);

// The blocks of a cluster arrive at block 0's mbarrier; its threads wait and read what they stored.
template <DeviceTarget T>
void launch_remote_arrive(T target, unsigned cluster, int* out);

// out[warp] = number of lanes that were elected.
template <DeviceTarget T>
void launch_elect(T target, unsigned warps, int* out);

enum class BarrierMisuse : int {
  use_before_init,
  use_after_inval,
  init_twice,
  init_count_zero,
  too_many_arrivals,
  arrivals_beyond_bytes,
  tx_overflow,
  completion_without_expectation,
  landing_in_a_later_phase,
  overwritten,
  wrong_phase,
  missed_phase,
  stale_state,
  not_shared,
  misaligned,
  poll_for_ever,
  cluster_arrive_twice,
  cluster_wait_first,
  cluster_missing_arrive,
  rank_outside,
  remote_to_exited,
};
template <DeviceTarget T>
void launch_barrier_misuse(T target, BarrierMisuse misuse, const int* x, int* out);

}  // namespace roundoff

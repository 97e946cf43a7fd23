#include "tests/simt/mbarriers.h"

#include "kernels/simt/cluster.h"
#include "kernels/simt/mbarrier.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/tma.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  ROUNDOFF_DEVICE void wait_for(WaitKind kind, Mbarrier * barrier, unsigned parity,
                                std::uint64_t state) {
    switch (kind) {
      case WaitKind::try_parity:
        mbarrier_wait(barrier, parity);
        break;
      case WaitKind::test_parity:
        while (!mbarrier_test_wait_parity(barrier, parity)) {
        }
        break;
      case WaitKind::try_state:
        while (!mbarrier_try_wait(barrier, state)) {
        }
        break;
      case WaitKind::test_state:
        while (!mbarrier_test_wait(barrier, state)) {
        }
        break;
    }
  }

  // Consumers arrive at the full barrier too, so that they have a state to wait by.
  __global__ void ring(WaitKind kind, int steps, const int* x, int* y) {
    ROUNDOFF_SHARED(Mbarrier, full, [2]);
    ROUNDOFF_SHARED(Mbarrier, empty, [2]);
    ROUNDOFF_SHARED(int, slot, [2][32]);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
      for (int s = 0; s < 2; ++s) {
        mbarrier_init(&full[s], 128);
        mbarrier_init(&empty[s], 96);
      }
    }
    __syncthreads();
    for (int step = 0; step < steps; ++step) {
      const int s = step % 2;
      const auto parity = static_cast<unsigned>(step / 2 % 2);
      if (warp == 0) {
        mbarrier_wait(&empty[s], parity ^ 1U);
        slot[s][lane] = x[step] + static_cast<int>(lane);
        mbarrier_arrive(&full[s]);
      } else {
        const std::uint64_t state = mbarrier_arrive(&full[s]);
        wait_for(kind, &full[s], parity, state);
        int sum = 0;
        for (int i = 0; i < 32; ++i) sum += slot[s][(i + static_cast<int>(lane)) % 32];
        y[(warp - 1) * 32 * static_cast<unsigned>(steps) + static_cast<unsigned>(step) * 32 +
          lane] = sum;
        mbarrier_arrive(&empty[s]);
      }
    }
  }

  __global__ void barrier_states(int* out) {
    ROUNDOFF_SHARED(Mbarrier, barrier, [1]);
    if (threadIdx.x != 0) return;
    mbarrier_init(barrier, 5);
    out[0] = mbarrier_test_wait_parity(barrier, 1) ? 1 : 0;  // the phase before the first
    const std::uint64_t state = mbarrier_arrive(barrier, 2);
    mbarrier_expect_tx(barrier, 48);
    mbarrier_arrive_expect_tx(barrier, 16);
    mbarrier_arrive(barrier, 2);
    out[1] = mbarrier_test_wait(barrier, state) ? 1 : 0;  // 64 bytes are missing
    mbarrier_complete_tx(barrier, 48);
    out[2] = mbarrier_test_wait_parity(barrier, 0) ? 1 : 0;
    mbarrier_complete_tx(barrier, 16);
    out[3] = mbarrier_test_wait(barrier, state) ? 1 : 0;
    out[4] = mbarrier_test_wait_parity(barrier, 0) ? 1 : 0;
    out[5] = mbarrier_test_wait_parity(barrier, 1) ? 1 : 0;
    mbarrier_inval(barrier);
    *barrier = 0;
    mbarrier_init(barrier, 1);
    // Bytes may land before they are announced, as long as the phase waits for an arrival.
    mbarrier_complete_tx(barrier, 16);
    mbarrier_arrive_expect_tx(barrier, 16);
    out[6] = mbarrier_try_wait_parity(barrier, 0) ? 1 : 0;
    out[7] = mbarrier_test_wait_parity(barrier, 1) ? 1 : 0;
  }

  __global__ void cluster_exchange(int* out) {
    ROUNDOFF_SHARED(int, box, [32]);
    ROUNDOFF_SHARED(int, sum, [1]);
    const unsigned rank = cluster_rank(), size = cluster_size();
    if (threadIdx.x == 0) sum[0] = 0;
    cluster_sync();
    cluster_store(&box[threadIdx.x], (rank + 1) % size,
                  static_cast<int>(blockIdx.x * 100 + threadIdx.x));
    if (threadIdx.x < 2) atomicAdd(cluster_map(&sum[0], 0), static_cast<int>(rank) + 1);
    cluster_arrive();
    cluster_wait();
    if (threadIdx.x == 31) {
      int* mine = out + blockIdx.x * 4;
      mine[0] = static_cast<int>(rank);
      mine[1] = static_cast<int>(size);
      mine[2] = box[31];
      mine[3] = cluster_load(&sum[0], 0);
    }
    cluster_sync();  // block 0's memory stays until all have read it
  }

  __global__ void remote_arrive(int* out) {
    ROUNDOFF_SHARED(Mbarrier, barrier, [1]);
    ROUNDOFF_SHARED(int, box, [16]);
    const unsigned rank = cluster_rank(), size = cluster_size();
    if (rank == 0 && threadIdx.x == 0) {
      mbarrier_init(barrier, 2 * size);
      fence_mbarrier_init();
    }
    cluster_sync();
    if (threadIdx.x == 0) {
      cluster_store(&box[rank], 0U, static_cast<int>(rank * rank) + 1);
      mbarrier_arrive_cluster(barrier, 0, 2);
    }
    if (rank == 0) {
      mbarrier_wait_cluster(barrier, 0);
      if (threadIdx.x < size) out[threadIdx.x] = box[threadIdx.x];
    }
    cluster_sync();
  }

  __global__ void elect(int* out) {
    ROUNDOFF_SHARED(int, count, [32]);
    const unsigned warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) count[warp] = 0;
    __syncwarp();
    if (elect_one()) atomicAdd(&count[warp], 1);
    __syncwarp();
    if (threadIdx.x % 32 == 0) out[warp] = count[warp];
  }

  __global__ void barrier_misuse(BarrierMisuse misuse, const int* x, int* out) {
    ROUNDOFF_SHARED(Mbarrier, barrier, [2]);
    ROUNDOFF_SHARED(uint4, box, [8]);
    const unsigned thread = threadIdx.x;
    switch (misuse) {
      case BarrierMisuse::use_before_init:
        mbarrier_arrive(barrier);
        break;
      case BarrierMisuse::use_after_inval:
        if (thread == 0) {
          mbarrier_init(barrier, 1);
          mbarrier_inval(barrier);
          mbarrier_arrive(barrier);
        }
        break;
      case BarrierMisuse::init_twice:
        mbarrier_init(barrier, 32);  // by every thread
        break;
      case BarrierMisuse::init_count_zero:
        if (thread == 0) mbarrier_init(barrier, 0);
        break;
      case BarrierMisuse::too_many_arrivals:
        if (thread == 0) {
          mbarrier_init(barrier, 2);
          mbarrier_arrive(barrier);
          mbarrier_arrive(barrier, 2);
        }
        break;
      case BarrierMisuse::arrivals_beyond_bytes:
        // A second arrival while the phase waits for bytes alone.
        if (thread == 0) {
          mbarrier_init(barrier, 1);
          mbarrier_arrive_expect_tx(barrier, 16);
          mbarrier_arrive(barrier);
        }
        break;
      case BarrierMisuse::tx_overflow:
        if (thread == 0) {
          mbarrier_init(barrier, 1);
          mbarrier_expect_tx(barrier, (1U << 20) - 16);
          mbarrier_expect_tx(barrier, 32);
        }
        break;
      case BarrierMisuse::completion_without_expectation:
        if (thread == 0) {
          mbarrier_init(barrier, 1);
          bulk_load(box, x, 16, barrier);
          mbarrier_arrive(barrier);  // expect_tx is forgotten
          mbarrier_wait(barrier, 0);
          // Whether the copy landed before or after the arrival.
          mbarrier_arrive_expect_tx(barrier, 0);
          mbarrier_wait(barrier, 1);
        }
        break;
      case BarrierMisuse::landing_in_a_later_phase:
        if (thread == 0) {
          mbarrier_init(barrier, 1);
          bulk_load(box, x, 16, barrier);
          mbarrier_arrive(barrier);
        }
        break;
      case BarrierMisuse::overwritten:
        if (thread == 0) {
          mbarrier_init(barrier, 1);
          barrier[0] = 0;
          mbarrier_arrive(barrier);
        }
        break;
      case BarrierMisuse::wrong_phase:
        if (thread == 0) mbarrier_init(barrier, 32);
        __syncthreads();
        mbarrier_arrive(barrier);
        mbarrier_wait(barrier, 0);
        mbarrier_wait(barrier, 1);  // nobody will arrive in that phase
        break;
      case BarrierMisuse::missed_phase:
        // Thread 0 waits for a phase that the others may end twice before it looks.
        if (thread == 0) mbarrier_init(barrier, 1);
        __syncthreads();
        if (thread == 0) mbarrier_wait(barrier, 0);
        if (thread == 1) {
          for (int i = 0; i < 3; ++i) mbarrier_arrive(barrier);
        }
        break;
      case BarrierMisuse::stale_state:
        if (thread == 0) {
          mbarrier_init(barrier, 1);
          const std::uint64_t state = mbarrier_arrive(barrier);
          mbarrier_arrive(barrier);
          out[0] = mbarrier_test_wait(barrier, state) ? 1 : 0;
        }
        break;
      case BarrierMisuse::not_shared:
        mbarrier_init(reinterpret_cast<Mbarrier*>(out), 1);
        break;
      case BarrierMisuse::misaligned:
        mbarrier_init(reinterpret_cast<Mbarrier*>(reinterpret_cast<char*>(barrier) + 4), 1);
        break;
      case BarrierMisuse::poll_for_ever:
        if (thread == 0) {
          mbarrier_init(barrier, 1);
          while (!mbarrier_test_wait_parity(barrier, 0)) {
          }
        }
        break;
      case BarrierMisuse::cluster_arrive_twice:
        cluster_arrive();
        cluster_arrive();
        break;
      case BarrierMisuse::cluster_wait_first:
        cluster_wait();
        break;
      case BarrierMisuse::cluster_missing_arrive:
        if (cluster_rank() == 0) {
          cluster_sync();
        } else {
          __syncthreads();
          if (thread == 0) mbarrier_init(barrier, 1);
          __syncthreads();
          mbarrier_wait(barrier, 0);
        }
        break;
      case BarrierMisuse::rank_outside:
        out[0] = *cluster_map(reinterpret_cast<int*>(box), 2);
        break;
      case BarrierMisuse::remote_to_exited:
        if (cluster_rank() == 0) {
          if (thread == 0) mbarrier_init(barrier, 1);
          cluster_sync();
        } else {
          cluster_sync();
          for (int i = 0; i < 100; ++i) __syncthreads();
          if (thread == 0) mbarrier_arrive_cluster(barrier, 0);
        }
        break;
    }
  }

}  // namespace

template <DeviceTarget T>
void launch_ring(T target, WaitKind kind, int steps, const int* x, int* y) {
  launch(target, {.name = "ring", .grid = {1}, .block = {128}, .needs = Architecture::sm_90a}, ring,
         kind, steps, x, y);
}
template <DeviceTarget T>
void launch_barrier_states(T target, int* out) {
  launch(target,
         {.name = "barrier_states", .grid = {1}, .block = {32}, .needs = Architecture::sm_90a},
         barrier_states, out);
}
template <DeviceTarget T>
void launch_cluster_exchange(T target, unsigned clusters, unsigned cluster, int* out) {
  launch(target,
         {.name = "cluster_exchange",
          .grid = {clusters * cluster},
          .block = {32},
          .cluster = {cluster},
          .needs = Architecture::sm_90a},
         cluster_exchange, out);
}
template <DeviceTarget T>
void launch_remote_arrive(T target, unsigned cluster, int* out) {
  launch(target,
         {.name = "remote_arrive",
          .grid = {cluster},
          .block = {64},
          .cluster = {cluster},
          .needs = Architecture::sm_90a},
         remote_arrive, out);
}
template <DeviceTarget T>
void launch_elect(T target, unsigned warps, int* out) {
  launch(target,
         {.name = "elect", .grid = {1}, .block = {warps * 32}, .needs = Architecture::sm_90a},
         elect, out);
}
template <DeviceTarget T>
void launch_barrier_misuse(T target, BarrierMisuse misuse, const int* x, int* out) {
  const bool clusters = misuse >= BarrierMisuse::cluster_arrive_twice;
  launch(target,
         {.name = "barrier_misuse",
          .grid = {clusters ? 2U : 1U},
          .block = {32},
          .cluster = {clusters ? 2U : 1U},
          .needs = Architecture::sm_90a},
         barrier_misuse, misuse, x, out);
}

template void launch_ring(Target, WaitKind, int, const int*, int*);
template void launch_barrier_states(Target, int*);
template void launch_cluster_exchange(Target, unsigned, unsigned, int*);
template void launch_remote_arrive(Target, unsigned, int*);
template void launch_elect(Target, unsigned, int*);
template void launch_barrier_misuse(Target, BarrierMisuse, const int*, int*);

}  // namespace roundoff

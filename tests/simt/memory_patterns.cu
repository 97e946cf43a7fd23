#include "tests/simt/memory_patterns.h"

#include "kernels/simt/simt.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr unsigned kThreads = 64;

  struct Record {
    std::uint32_t word[6];
  };

  ROUNDOFF_DEVICE std::uint32_t sum_of(const std::uint32_t* words, unsigned n) {
    std::uint32_t sum = 0;
    for (unsigned i = 0; i < n; ++i) sum += words[i];
    return sum;
  }

  __global__ void pattern_kernel(Pattern pattern, const std::uint32_t* x, unsigned char* scratch,
                                 unsigned* count, std::uint32_t* y) {
    ROUNDOFF_SHARED(std::uint32_t, words, [256]);
    ROUNDOFF_SHARED(bool, last, [1]);
    const unsigned t = threadIdx.x;
    const unsigned lane = t % 32;
    const unsigned next = (t + 1) % kThreads;
    auto* bytes = reinterpret_cast<unsigned char*>(words);
    auto* shorts = reinterpret_cast<std::uint16_t*>(words);
    auto* device_words = reinterpret_cast<std::uint32_t*>(scratch);
    std::uint32_t v = x[t];
    switch (pattern) {
      case Pattern::neighbouring_bytes:
        bytes[t] = static_cast<unsigned char>(t);
        scratch[blockIdx.x * kThreads + t] = static_cast<unsigned char>(t);
        __syncthreads();
        v = bytes[next];
        break;
      case Pattern::neighbouring_halves:
        shorts[t] = static_cast<std::uint16_t>(t);
        reinterpret_cast<std::uint16_t*>(scratch)[blockIdx.x * kThreads + t] =
            static_cast<std::uint16_t>(t);
        __syncthreads();
        v = shorts[next];
        break;
      case Pattern::volatile_flags: {
        volatile std::uint32_t* flag = words;
        *flag = 1;
        __syncthreads();
        v = *flag;
        break;
      }
      case Pattern::atomics_only:
        v = atomicAdd(&count[0], 1U) < gridDim.x * kThreads ? 1 : 0;
        break;
      case Pattern::fences_in_all_threads:
        device_words[blockIdx.x * kThreads + t] = t;
        __threadfence();
        __syncthreads();
        if (t == 0) last[0] = atomicAdd(&count[0], 1U) == gridDim.x - 1;
        __syncthreads();
        if (last[0]) {
          __threadfence();
          v = sum_of(device_words + t, 1) + device_words[(gridDim.x - 1) * kThreads + next];
        }
        break;
      case Pattern::release_chain:
        if (t == 0) {
          // Where blocks run in another order, the flag is not there yet.
          const bool seen = atomicAdd(&count[0], 0U) != 0;
          __threadfence();
          if (seen) v = device_words[0];
          if (!seen && atomicCAS(&count[1], 0U, 1U) == 0) {
            device_words[0] = 7;
            __threadfence();
            atomicExch(&count[0], 1U);
          }
        }
        break;
      case Pattern::warp_exchange:
        words[t] = t;
        __syncwarp();
        v = words[t ^ 1];
        __syncwarp();
        words[t] = v;
        __syncwarp();
        v = words[t ^ 2];
        break;
      case Pattern::partial_warp_exchange:
        if (lane < 16) {
          words[t] = t;
          __syncwarp(0xFFFFU);
          v = words[t ^ 1];
        }
        break;
      case Pattern::structure_copy: {
        auto* records = reinterpret_cast<Record*>(scratch) + blockIdx.x * kThreads;
        Record r{};
        r.word[3] = t;
        records[t] = r;
        __syncthreads();
        const Record other = records[next];
        v = other.word[3];
        break;
      }
      case Pattern::own_memory: {
        std::uint32_t own[8];
        for (unsigned i = 0; i < 8; ++i) own[(i + t) % 8] = i;
        v = sum_of(own, 8);
        break;
      }
      case Pattern::reads_shared_by_all:
        words[t] = t;
        __syncthreads();
        v = sum_of(words, kThreads);
        __syncthreads();
        words[next] = v;
        break;
      case Pattern::reads_unwritten:
        v = device_words[t];
        break;
      case Pattern::reads_unwritten_tail:
        scratch[4 * t] = 1;
        scratch[4 * t + 1] = 1;
        scratch[4 * t + 2] = 1;
        v = device_words[t];
        break;
      case Pattern::overlapping_structure: {
        auto* record = reinterpret_cast<Record*>(device_words + 4 * t);
        Record r{};
        r.word[0] = t;
        *record = r;
        break;
      }
      case Pattern::half_of_a_word:
        if (t == 0) words[5] = 1;
        if (t == 33) shorts[11] = 1;
        break;
      case Pattern::before_allocation:
        v = x[static_cast<std::ptrdiff_t>(t) - 1];
        break;
      case Pattern::far_beyond:
        v = x[(std::size_t{1} << 28) + t];
        break;
      case Pattern::add_without_release:
        if (t == 0) {
          device_words[blockIdx.x] = t;
          last[0] = atomicAdd(&count[0], 1U) == gridDim.x - 1;
          if (last[0]) v = sum_of(device_words, gridDim.x);
        }
        break;
      case Pattern::misaligned_plain:
        v = *reinterpret_cast<const std::uint32_t*>(reinterpret_cast<const char*>(x) + 4 * t + 2);
        break;
      case Pattern::write_after_all_read:
        words[t] = t;
        __syncthreads();
        v = sum_of(words, kThreads);
        if (t == 40) words[3] = 0;
        break;
      case Pattern::host_memory:
        // The first line of the kernel has found it.
        break;
    }
    y[blockIdx.x * kThreads + t] = v;
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void launch_pattern(T target, Pattern pattern, unsigned blocks, const std::uint32_t* x,
                    unsigned char* scratch, unsigned* count, std::uint32_t* y) {
  launch(target, {.name = "pattern", .grid = {blocks}, .block = {kThreads}}, pattern_kernel,
         pattern, x, scratch, count, y);
}
template void launch_pattern(Target, Pattern, unsigned, const std::uint32_t*, unsigned char*,
                             unsigned*, std::uint32_t*);

}  // namespace roundoff

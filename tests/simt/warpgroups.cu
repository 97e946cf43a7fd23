#include "tests/simt/warpgroups.h"

#include "kernels/base/check.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/tma.h"
#include "kernels/simt/wgmma.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  constexpr unsigned kImage = 96 * 1024;

  template <class Element, int kN, Major kMajorA, Major kMajorB>
  __global__ void __launch_bounds__(128)
      wgmma_once(WgmmaCase c, const std::uint8_t* image, unsigned bytes,
                 const std::uint32_t* a_registers, float* out) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    for (unsigned i = threadIdx.x; i < bytes; i += 128) shared[i] = image[i];
    fence_proxy_async();
    __syncthreads();
    float d[kN / 2];
    ROUNDOFF_UNROLL
    for (int i = 0; i < kN / 2; ++i) d[i] = out[threadIdx.x * (kN / 2) + static_cast<unsigned>(i)];
    const std::uint64_t b = wgmma_descriptor(shared + c.b, c.swizzle_b, c.leading_b, c.stride_b);
    wgmma_fence();
    if (c.a_in_registers) {
      std::uint32_t a[4];
      for (unsigned i = 0; i < 4; ++i) a[i] = a_registers[threadIdx.x * 4 + i];
      wgmma_fence();
      wgmma<Element, kN, kMajorB>(d, a, b, c.accumulate);
    } else {
      const std::uint64_t a = wgmma_descriptor(shared + c.a, c.swizzle_a, c.leading_a, c.stride_a);
      wgmma<Element, kN, kMajorA, kMajorB>(d, a, b, c.accumulate);
    }
    wgmma_commit();
    wgmma_wait<0>();
    ROUNDOFF_UNROLL
    for (int i = 0; i < kN / 2; ++i) out[threadIdx.x * (kN / 2) + static_cast<unsigned>(i)] = d[i];
  }

  template <int kN, Major kMajorA, Major kMajorB>
  __global__ void __launch_bounds__(128)
      wgmma_half_once(WgmmaCase c, const std::uint8_t* image, unsigned bytes, float* out) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    for (unsigned i = threadIdx.x; i < bytes; i += 128) shared[i] = image[i];
    fence_proxy_async();
    __syncthreads();
    std::uint32_t d[kN / 4];
    float* mine = out + threadIdx.x * (kN / 2);
    ROUNDOFF_UNROLL
    for (int i = 0; i < kN / 4; ++i)
      d[i] = Half(mine[2 * i]).bits | static_cast<std::uint32_t>(Half(mine[2 * i + 1]).bits) << 16;
    wgmma_fence();
    wgmma_half<kN, kMajorA, kMajorB>(
        d, wgmma_descriptor(shared + c.a, c.swizzle_a, c.leading_a, c.stride_a),
        wgmma_descriptor(shared + c.b, c.swizzle_b, c.leading_b, c.stride_b), c.accumulate);
    wgmma_commit();
    wgmma_wait<0>();
    ROUNDOFF_UNROLL
    for (int i = 0; i < kN / 4; ++i) {
      mine[2 * i] = static_cast<float>(Half::from_bits(static_cast<std::uint16_t>(d[i])));
      mine[2 * i + 1] = static_cast<float>(Half::from_bits(static_cast<std::uint16_t>(d[i] >> 16)));
    }
  }

  constexpr int kBM = 128, kBN = 64, kBK = 64, kGemmStages = 3;
  constexpr unsigned kABytes = kBM * kBK * 2, kBBytes = kBN * kBK * 2;

  __global__ void __launch_bounds__(384, 1)
      wgmma_gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                 int m, int n, int k, float* c) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    ROUNDOFF_SHARED(Mbarrier, full, [kGemmStages]);
    ROUNDOFF_SHARED(Mbarrier, empty, [kGemmStages]);
    unsigned char* stage_a = shared;
    unsigned char* stage_b = shared + kGemmStages * kABytes;
    const int thread = static_cast<int>(threadIdx.x);
    const int group = thread / 128;
    const unsigned size = cluster_size(), rank = cluster_rank();
    const int m0 = static_cast<int>(blockIdx.x) * kBM, n0 = static_cast<int>(blockIdx.y) * kBN;
    const int steps = (k + kBK - 1) / kBK;
    if (thread == 0) {
      for (int s = 0; s < kGemmStages; ++s) {
        mbarrier_init(&full[s], 1);
        mbarrier_init(&empty[s], 2 * size);  // both consumers of every block that gets B
      }
      fence_mbarrier_init();
    }
    cluster_sync();
    if (group == 0) {
      registers_decrease<40>();
      if (thread == 0) {
        for (int step = 0; step < steps; ++step) {
          const int s = step % kGemmStages;
          mbarrier_wait_cluster(&empty[s], static_cast<unsigned>(step / kGemmStages % 2) ^ 1U);
          mbarrier_arrive_expect_tx(&full[s], kABytes + kBBytes);
          tma_load(stage_a + s * static_cast<int>(kABytes), &map_a, {step * kBK, m0}, &full[s]);
          // Each block of the cluster brings its part of B's rows to all.
          const int part = kBN / static_cast<int>(size);
          unsigned char* to =
              stage_b + static_cast<unsigned>(s) * kBBytes + rank * (kBBytes / size);
          const int row = n0 + static_cast<int>(rank) * part;
          if (size == 1) {
            tma_load(to, &map_b, {step * kBK, row}, &full[s]);
          } else {
            tma_load_multicast(to, &map_b, {step * kBK, row}, &full[s],
                               static_cast<std::uint16_t>((1U << size) - 1));
          }
        }
      }
    } else {
      registers_increase<232>();
      const int consumer = group - 1, lane = thread % 32, warp = thread / 32 % 4;
      float sums[kBN / 2];
      ROUNDOFF_UNROLL
      for (int i = 0; i < kBN / 2; ++i) sums[i] = 0;
      for (int step = 0; step < steps; ++step) {
        const int s = step % kGemmStages;
        mbarrier_wait(&full[s], static_cast<unsigned>(step / kGemmStages % 2));
        const std::uint64_t a =
            wgmma_descriptor(stage_a + s * static_cast<int>(kABytes) + consumer * 64 * 128,
                             Swizzle::span128, 16, 1024);
        const std::uint64_t b =
            wgmma_descriptor(stage_b + s * static_cast<int>(kBBytes), Swizzle::span128, 16, 1024);
        wgmma_fence();
        ROUNDOFF_UNROLL
        for (unsigned l = 0; l < kBK / 16; ++l)
          wgmma<BFloat16, kBN>(sums, wgmma_advance(a, l * 32), wgmma_advance(b, l * 32), true);
        wgmma_commit();
        // The group before this one has read its stage.
        wgmma_wait<1>();
        if (step > 0 && thread % 128 == 0)
          for (unsigned other = 0; other < size; ++other)
            mbarrier_arrive_cluster(&empty[(step - 1) % kGemmStages], other);
      }
      wgmma_wait<0>();
      for (int i = 0; i < kBN / 2; ++i) {
        const int row = m0 + consumer * 64 + warp * 16 + lane / 4 + (i / 2 % 2) * 8;
        const int column = n0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (row < m && column < n) c[row * n + column] = sums[i];
      }
    }
    cluster_sync();
  }

  // Ones in all of shared memory's first 16 KiB, as bf16.
  ROUNDOFF_DEVICE void fill_ones(unsigned char* shared) {
    auto* words = reinterpret_cast<std::uint32_t*>(shared);
    for (unsigned i = threadIdx.x; i < 4096; i += blockDim.x) words[i] = 0x3F803F80U;
    fence_proxy_async();
    __syncthreads();
  }

  __global__ void __launch_bounds__(128) two_accumulators(float* out) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    fill_ones(shared);
    const std::uint64_t ones = wgmma_descriptor(shared, Swizzle::span128, 16, 1024);
    float first[4] = {}, second[4] = {1, 1, 1, 1};
    wgmma_fence();
    wgmma<BFloat16, 8>(first, ones, ones, true);  // 16
    wgmma_commit();
    wgmma<BFloat16, 8>(second, ones, ones, true);  // 17
    wgmma<BFloat16, 8>(second, ones, ones, true);  // 33
    wgmma_commit();
    wgmma_wait<1>();
    float seen[4];
    ROUNDOFF_UNROLL
    for (int i = 0; i < 4; ++i) {
      seen[i] = first[i];
      first[i] *= 2;  // 32
    }
    wgmma_fence();
    wgmma<BFloat16, 8>(first, ones, ones, true);  // 48
    wgmma_commit();
    wgmma_wait<0>();
    ROUNDOFF_UNROLL
    for (int i = 0; i < 4; ++i) {
      out[threadIdx.x * 4 + static_cast<unsigned>(i)] = first[i] + seen[i] * 1000;
      out[512 + threadIdx.x * 4 + static_cast<unsigned>(i)] = second[i];
    }
  }

  __global__ void __launch_bounds__(128) wgmma_misuse(WgmmaMisuse misuse, float* out) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    fill_ones(shared);
    const unsigned thread = threadIdx.x;
    std::uint64_t ones = wgmma_descriptor(shared, Swizzle::span128, 16, 1024);
    float d[8] = {};
    float(&d8)[4] = *reinterpret_cast<float(*)[4]>(d);
    if (misuse == WgmmaMisuse::other_descriptor_in_warp && thread >= 96) ones += 64;
    if (misuse == WgmmaMisuse::other_descriptor_in_lane && thread == 5) ones += 64;
    if (misuse == WgmmaMisuse::base_offset) ones += 8;  // one line of 128 bytes
    if (misuse == WgmmaMisuse::beyond_shared)
      ones = wgmma_descriptor(shared, Swizzle::span128, 16, 0x3FFF0);
    if (misuse == WgmmaMisuse::registers_the_wrong_way) {
      registers_decrease<40>();
      registers_increase<32>();
      return;
    }
    if (misuse == WgmmaMisuse::too_many_registers) {
      registers_increase<256>();
      return;
    }
    if (misuse == WgmmaMisuse::fence_too_early) {
      wgmma_fence();
      wgmma<BFloat16, 8>(d8, ones, ones, true);
      wgmma_commit();
      wgmma_wait<0>();
      ROUNDOFF_UNROLL
      for (int i = 0; i < 4; ++i) d8[i] += 1;
    } else if (misuse == WgmmaMisuse::divergent_fence) {
      if (thread % 32 < 16) wgmma_fence();
    } else if (misuse != WgmmaMisuse::no_fence) {
      wgmma_fence();
    }
    if (misuse == WgmmaMisuse::warp_is_missing && thread < 32) return;
    wgmma<BFloat16, 8>(d8, ones, ones, true);
    if (misuse == WgmmaMisuse::other_shape) wgmma<BFloat16, 16>(d, ones, ones, true);
    if (misuse == WgmmaMisuse::write_in_flight) d8[2] = 5;
    if (misuse == WgmmaMisuse::read_in_flight) out[thread] = d8[0];
    if (misuse != WgmmaMisuse::no_commit) wgmma_commit();
    if (misuse != WgmmaMisuse::no_wait) wgmma_wait<0>();
    if (misuse != WgmmaMisuse::read_in_flight) out[thread] = d8[0];
  }

  template <class Element, int kN, Major kMajorA, Major kMajorB>
  void wgmma_of(Target target, const WgmmaCase& c, const std::uint8_t* image, unsigned bytes,
                const std::uint32_t* a_registers, float* d) {
    launch(target,
           {.name = "wgmma_once",
            .grid = {1},
            .block = {128},
            .shared = kImage,
            .needs = Architecture::sm_90a},
           wgmma_once<Element, kN, kMajorA, kMajorB>, c, image, bytes, a_registers, d);
  }

  // Calls f<Element, kN, kMajorA, kMajorB>() where it is one of those that are compiled.
  template <class Element, int kN, class F>
  bool with_majors(const WgmmaCase& c, F&& f) {
    if (c.mn_major_a && c.mn_major_b) {
      f.template operator()<Element, kN, Major::mn, Major::mn>();
    } else if (c.mn_major_a) {
      f.template operator()<Element, kN, Major::mn, Major::k>();
    } else if (c.mn_major_b) {
      f.template operator()<Element, kN, Major::k, Major::mn>();
    } else {
      f.template operator()<Element, kN, Major::k, Major::k>();
    }
    return true;
  }
  template <class F>
  bool with_kernel(const WgmmaCase& c, F&& f) {
    if (c.operand == WgmmaOperand::tf32) {
      if (c.mn_major_a || c.mn_major_b) return false;
      if (c.n == 16) f.template operator()<Tf32, 16, Major::k, Major::k>();
      if (c.n == 256) f.template operator()<Tf32, 256, Major::k, Major::k>();
      return c.n == 16 || c.n == 256;
    }
    if (c.operand == WgmmaOperand::fp16) return c.n == 64 ? with_majors<Half, 64>(c, f) : false;
    if (c.n == 8) return with_majors<BFloat16, 8>(c, f);
    if (c.n == 40) return with_majors<BFloat16, 40>(c, f);
    if (c.n == 256) return with_majors<BFloat16, 256>(c, f);
    return false;
  }

}  // namespace

template <DeviceTarget T>
void launch_wgmma(T target, const WgmmaCase& c, const std::uint8_t* image, unsigned bytes,
                  const std::uint32_t* a_registers, float* d) {
  if (c.half) {
    const LaunchConfig config{.name = "wgmma_half_once",
                              .grid = {1},
                              .block = {128},
                              .shared = kImage,
                              .needs = Architecture::sm_90a};
    if (c.n == 16)
      launch(target, config, wgmma_half_once<16, Major::mn, Major::k>, c, image, bytes, d);
    if (c.n == 256)
      launch(target, config, wgmma_half_once<256, Major::k, Major::mn>, c, image, bytes, d);
    return;
  }
  ROUNDOFF_CHECK(bytes <= kImage, "wgmma_once", "image of ", bytes, " bytes");
  const bool compiled = with_kernel(c, [&]<class E, int kN, Major kA, Major kB>() {
    wgmma_of<E, kN, kA, kB>(target, c, image, bytes, a_registers, d);
  });
  ROUNDOFF_CHECK(compiled, "wgmma_once", "not compiled for this case");
}

template <DeviceTarget T>
void launch_wgmma_gemm(T target, unsigned cluster, const TiledMap& a, const TiledMap& b, int m,
                       int n, int k, float* c) {
  TiledMap part = b;
  part.box[1] = kBN / cluster;
  const unsigned rows = (static_cast<unsigned>(m) + kBM - 1) / kBM;
  launch(target,
         {.name = "wgmma_gemm",
          .grid = {(rows + cluster - 1) / cluster * cluster,
                   (static_cast<unsigned>(n) + kBN - 1) / kBN},
          .block = {384},
          .shared = kGemmStages * (kABytes + kBBytes),
          .cluster = {cluster},
          .needs = Architecture::sm_90a},
         wgmma_gemm, encode_tiled(a), encode_tiled(part), m, n, k, c);
}

template <DeviceTarget T>
void launch_two_accumulators(T target, float* d) {
  launch(target,
         {.name = "two_accumulators",
          .grid = {1},
          .block = {128},
          .shared = 16384,
          .needs = Architecture::sm_90a},
         two_accumulators, d);
}

template <DeviceTarget T>
void launch_wgmma_misuse(T target, WgmmaMisuse misuse, float* out) {
  const unsigned threads = misuse == WgmmaMisuse::no_warpgroup         ? 96
                           : misuse == WgmmaMisuse::too_many_registers ? 384
                                                                       : 128;
  launch(target,
         {.name = "wgmma_misuse",
          .grid = {1},
          .block = {threads},
          .shared = 16384,
          .needs = Architecture::sm_90a},
         wgmma_misuse, misuse, out);
}

template void launch_wgmma(Target, const WgmmaCase&, const std::uint8_t*, unsigned,
                           const std::uint32_t*, float*);
template void launch_wgmma_gemm(Target, unsigned, const TiledMap&, const TiledMap&, int, int, int,
                                float*);
template void launch_two_accumulators(Target, float*);
template void launch_wgmma_misuse(Target, WgmmaMisuse, float*);

}  // namespace roundoff

#include "tests/simt/fragments.h"

#include "kernels/base/check.h"
#include "kernels/simt/copy.h"
#include "kernels/simt/mma.h"
#include "kernels/simt/simt.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  template <class Element, int kK>
  __global__ void mma_once(const std::uint32_t* a, const std::uint32_t* b, const std::uint32_t* c,
                           std::uint32_t* d) {
    using Shape = MmaShape<Element, kK>;
    std::uint32_t fa[Shape::kA], fb[Shape::kB];
    float fc[4];
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = 0; i < Shape::kA; ++i) fa[i] = a[lane * Shape::kA + i];
    for (int i = 0; i < Shape::kB; ++i) fb[i] = b[lane * Shape::kB + i];
    for (int i = 0; i < 4; ++i) fc[i] = __uint_as_float(c[lane * 4 + i]);
    mma<Element, kK>(fc, fa, fb, fc);
    for (int i = 0; i < 4; ++i) d[lane * 4 + i] = __float_as_uint(fc[i]);
  }

  template <int kK>
  __global__ void mma_half_once(const std::uint32_t* a, const std::uint32_t* b,
                                const std::uint32_t* c, std::uint32_t* d) {
    using Shape = MmaShape<Half, kK>;
    std::uint32_t fa[Shape::kA], fb[Shape::kB], fc[2];
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = 0; i < Shape::kA; ++i) fa[i] = a[lane * Shape::kA + i];
    for (int i = 0; i < Shape::kB; ++i) fb[i] = b[lane * Shape::kB + i];
    for (int i = 0; i < 2; ++i) fc[i] = c[lane * 2 + i];
    mma_half<kK>(fc, fa, fb, fc);
    for (int i = 0; i < 2; ++i) d[lane * 2 + i] = fc[i];
  }

  template <class T, int kK>
  __global__ void mma_tile_once(const std::uint32_t* a, const std::uint32_t* b, float* c) {
    using Shape = MmaShape<T, kK>;
    std::uint32_t fa[2][Shape::kA], fb[3][Shape::kB];
    float fc[2][3][4];
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = 0; i < 2; ++i)
      for (int r = 0; r < Shape::kA; ++r) fa[i][r] = a[(lane * 2 + i) * Shape::kA + r];
    for (int j = 0; j < 3; ++j)
      for (int r = 0; r < Shape::kB; ++r) fb[j][r] = b[(lane * 3 + j) * Shape::kB + r];
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 3; ++j)
        for (int r = 0; r < 4; ++r) fc[i][j][r] = c[((lane * 2 + i) * 3 + j) * 4 + r];
    mma_tile<T, kK>(fc, fa, fb);
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 3; ++j)
        for (int r = 0; r < 4; ++r) c[((lane * 2 + i) * 3 + j) * 4 + r] = fc[i][j][r];
  }

  template <int kCount, bool kTranspose>
  __global__ void ldmatrix_once(const std::uint8_t* image, const int* row_offset,
                                std::uint32_t* values) {
    ROUNDOFF_SHARED(uint4, shared, [128]);
    auto* bytes = reinterpret_cast<std::uint8_t*>(shared);
    const int lane = static_cast<int>(threadIdx.x);
    for (unsigned i = threadIdx.x; i < 2048; i += 32) bytes[i] = image[i];
    __syncwarp();
    std::uint32_t r[kCount];
    ldmatrix<kCount, kTranspose>(r, bytes + row_offset[lane]);
    for (int i = 0; i < kCount; ++i) values[lane * kCount + i] = r[i];
  }

  template <int kCount, bool kTranspose>
  __global__ void stmatrix_once(const std::uint32_t* values, const int* row_offset,
                                std::uint8_t* image) {
    ROUNDOFF_SHARED(uint4, shared, [128]);
    auto* bytes = reinterpret_cast<std::uint8_t*>(shared);
    const int lane = static_cast<int>(threadIdx.x);
    for (unsigned i = threadIdx.x; i < 2048; i += 32) bytes[i] = 0;
    __syncwarp();
    std::uint32_t r[kCount];
    for (int i = 0; i < kCount; ++i) r[i] = values[lane * kCount + i];
    stmatrix<kCount, kTranspose>(bytes + row_offset[lane], r);
    __syncwarp();
    for (unsigned i = threadIdx.x; i < 2048; i += 32) image[i] = bytes[i];
  }

  // 32 threads, each 4 words: one copy of 16 bytes, or two of 8, or four of 4.
  __global__ void staged_copy(unsigned n, const std::uint32_t* x, std::uint32_t* y) {
    ROUNDOFF_SHARED(uint4, stage, [3][32]);
    const unsigned lane = threadIdx.x;
    const unsigned word = blockIdx.x * 128 + 4 * lane;
    const auto bytes_at = [n](unsigned i, int most) {
      const int left = i < n ? static_cast<int>(n - i) * 4 : 0;
      return left < most ? left : most;
    };
    auto* words = reinterpret_cast<std::uint32_t*>(&stage[0][lane]);
    cp_async<16, CacheLevel::l2>(words, x + word, bytes_at(word, 16));
    cp_async_commit();
    words = reinterpret_cast<std::uint32_t*>(&stage[1][lane]);
    for (unsigned i = 0; i < 4; i += 2) cp_async<8>(words + i, x + word + i, bytes_at(word + i, 8));
    cp_async_commit();
    words = reinterpret_cast<std::uint32_t*>(&stage[2][lane]);
    for (unsigned i = 0; i < 4; ++i) cp_async<4>(words + i, x + word + i, bytes_at(word + i, 4));
    cp_async_wait<1>();
    __syncwarp();
    // The neighbour's words of the first stage.
    const unsigned other = lane ^ 1U;
    const auto* first = reinterpret_cast<const std::uint32_t*>(&stage[0][other]);
    const unsigned to = blockIdx.x * 128 + 4 * other;
    for (unsigned i = 0; i < 4; ++i) y[to + i] = first[i];
    cp_async_wait<0>();
    const auto* second = reinterpret_cast<const std::uint32_t*>(&stage[1][lane]);
    for (unsigned i = 0; i < 4; ++i) y[gridDim.x * 128 + word + i] = second[i];
    cp_async_wait_all();
    const auto* third = reinterpret_cast<const std::uint32_t*>(&stage[2][lane]);
    for (unsigned i = 0; i < 4; ++i) y[gridDim.x * 256 + word + i] = third[i];
  }

  // Four warps, each 32 x 32 of 64 x 64; two stages of k = 16.
  __global__ void __launch_bounds__(128)
      mma_gemm(int n, int k, const std::uint16_t* a, const std::uint16_t* b, float* c) {
    ROUNDOFF_SHARED(uint4, shared, [2][2][128]);
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32, warp = thread / 32;
    const int m0 = static_cast<int>(blockIdx.y) * 64, n0 = static_cast<int>(blockIdx.x) * 64;
    // A row is two chunks of 16 bytes; the second bit of the row permutes them.
    const auto at = [](int row, int chunk) { return row * 2 + (chunk ^ ((row >> 2) & 1)); };
    const auto load = [&](int step) {
      const int row = thread / 2, chunk = thread % 2, stage = step % 2;
      cp_async<16, CacheLevel::l2>(&shared[stage][0][at(row, chunk)],
                                   a + (m0 + row) * k + step * 16 + chunk * 8);
      cp_async<16, CacheLevel::l2>(&shared[stage][1][at(row, chunk)],
                                   b + (n0 + row) * k + step * 16 + chunk * 8);
      cp_async_commit();
    };
    float sums[2][4][4] = {};
    load(0);
    const int steps = k / 16;
    const int wm = warp / 2 * 32, wn = warp % 2 * 32;
    for (int step = 0; step < steps; ++step) {
      if (step + 1 < steps) {
        load(step + 1);
        cp_async_wait<1>();
      } else {
        cp_async_wait<0>();
      }
      __syncthreads();
      const int stage = step % 2;
      std::uint32_t fa[2][4], fb[4][2];
      const void *rows_a[2], *rows_b[4];
      ROUNDOFF_UNROLL
      for (int i = 0; i < 2; ++i)
        rows_a[i] = &shared[stage][0][at(wm + i * 16 + lane % 16, lane / 16)];
      ROUNDOFF_UNROLL
      for (int j = 0; j < 4; ++j)
        rows_b[j] = &shared[stage][1][at(wn + j * 8 + lane % 8, lane / 8 % 2)];
      ldmatrix_tile(fa, rows_a);
      ldmatrix_tile(fb, rows_b);
      mma_tile<BFloat16, 16>(sums, fa, fb);
      __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 4; ++j)
        for (int r = 0; r < 4; ++r)
          c[(m0 + wm + i * 16 + lane / 4 + r / 2 * 8) * n + n0 + wn + j * 8 + lane % 4 * 2 +
            r % 2] = sums[i][j][r];
  }

  __global__ void copy_misuse(CopyMisuse misuse, const std::uint32_t* x, std::uint32_t* y) {
    ROUNDOFF_SHARED(uint4, shared, [64]);
    auto* words = reinterpret_cast<std::uint32_t*>(shared);
    const unsigned lane = threadIdx.x;
    switch (misuse) {
      case CopyMisuse::misaligned_copy:
        cp_async<16>(words + 1, x);
        break;
      case CopyMisuse::too_many_source_bytes:
        cp_async<8>(words, x, 12);
        break;
      case CopyMisuse::copy_to_global:
        cp_async<4>(y, x);
        break;
      case CopyMisuse::misaligned_matrix: {
        std::uint32_t r[1];
        ldmatrix(r, words + 4 * (lane % 8) + 1);
        y[lane] = r[0];
        break;
      }
      case CopyMisuse::divergent_mma: {
        float d[4] = {};
        const std::uint32_t a[4] = {}, b[2] = {};
        if (lane < 31) mma<Half, 16>(d, a, b, d);
        y[lane] = __float_as_uint(d[0]);
        break;
      }
      case CopyMisuse::missing_wait: {
        // One group too few is waited for.
        words[lane] = 0;
        __syncwarp();
        cp_async<4>(words + lane, x + lane);
        cp_async_commit();
        cp_async_wait<1>();
        y[lane] = words[lane];
        cp_async_wait<0>();
        break;
      }
    }
  }

  template <int kCount>
  void ldmatrix_of(Target target, bool transpose, const std::uint8_t* image, const int* row_offset,
                   std::uint32_t* values) {
    const LaunchConfig config{.name = "ldmatrix_once", .grid = {1}, .block = {32}};
    if (transpose) {
      launch(target, config, ldmatrix_once<kCount, true>, image, row_offset, values);
    } else {
      launch(target, config, ldmatrix_once<kCount, false>, image, row_offset, values);
    }
  }
  template <int kCount>
  void stmatrix_of(Target target, bool transpose, const std::uint32_t* values,
                   const int* row_offset, std::uint8_t* image) {
    const LaunchConfig config{
        .name = "stmatrix_once", .grid = {1}, .block = {32}, .needs = Architecture::sm_90a};
    if (transpose) {
      launch(target, config, stmatrix_once<kCount, true>, values, row_offset, image);
    } else {
      launch(target, config, stmatrix_once<kCount, false>, values, row_offset, image);
    }
  }

}  // namespace

template <DeviceTarget T>
void launch_mma(T target, MmaCase which, const std::uint32_t* a, const std::uint32_t* b,
                const std::uint32_t* c, std::uint32_t* d) {
  const LaunchConfig config{.name = "mma_once", .grid = {1}, .block = {32}};
  switch (which) {
    case MmaCase::fp16_k16:
      return launch(target, config, mma_once<Half, 16>, a, b, c, d);
    case MmaCase::bf16_k16:
      return launch(target, config, mma_once<BFloat16, 16>, a, b, c, d);
    case MmaCase::fp16_k8:
      return launch(target, config, mma_once<Half, 8>, a, b, c, d);
    case MmaCase::bf16_k8:
      return launch(target, config, mma_once<BFloat16, 8>, a, b, c, d);
    case MmaCase::tf32_k8:
      return launch(target, config, mma_once<Tf32, 8>, a, b, c, d);
    case MmaCase::tf32_k4:
      return launch(target, config, mma_once<Tf32, 4>, a, b, c, d);
    case MmaCase::half_k16:
      return launch(target, config, mma_half_once<16>, a, b, c, d);
    case MmaCase::half_k8:
      return launch(target, config, mma_half_once<8>, a, b, c, d);
  }
}

template <DeviceTarget T>
void launch_mma_tile(T target, MmaCase which, const std::uint32_t* a, const std::uint32_t* b,
                     float* c) {
  const LaunchConfig config{.name = "mma_tile_once", .grid = {1}, .block = {32}};
  switch (which) {
    case MmaCase::fp16_k16:
      return launch(target, config, mma_tile_once<Half, 16>, a, b, c);
    case MmaCase::bf16_k16:
      return launch(target, config, mma_tile_once<BFloat16, 16>, a, b, c);
    case MmaCase::bf16_k8:
      return launch(target, config, mma_tile_once<BFloat16, 8>, a, b, c);
    case MmaCase::tf32_k8:
      return launch(target, config, mma_tile_once<Tf32, 8>, a, b, c);
    default:
      ROUNDOFF_CHECK(false, "mma_tile_once", "a case that has no tile here");
  }
}

template <DeviceTarget T>
void launch_ldmatrix(T target, int count, bool transpose, const std::uint8_t* image,
                     const int* row_offset, std::uint32_t* values) {
  if (count == 1) ldmatrix_of<1>(target, transpose, image, row_offset, values);
  if (count == 2) ldmatrix_of<2>(target, transpose, image, row_offset, values);
  if (count == 4) ldmatrix_of<4>(target, transpose, image, row_offset, values);
}
template <DeviceTarget T>
void launch_stmatrix(T target, int count, bool transpose, const std::uint32_t* values,
                     const int* row_offset, std::uint8_t* image) {
  if (count == 1) stmatrix_of<1>(target, transpose, values, row_offset, image);
  if (count == 2) stmatrix_of<2>(target, transpose, values, row_offset, image);
  if (count == 4) stmatrix_of<4>(target, transpose, values, row_offset, image);
}

template <DeviceTarget T>
void launch_staged_copy(T target, unsigned blocks, unsigned n, const std::uint32_t* x,
                        std::uint32_t* y) {
  launch(target, {.name = "staged_copy", .grid = {blocks}, .block = {32}}, staged_copy, n, x, y);
}

template <DeviceTarget T>
void launch_mma_gemm(T target, int m, int n, int k, const std::uint16_t* a, const std::uint16_t* b,
                     float* c) {
  launch(target,
         {.name = "mma_gemm",
          .grid = {static_cast<unsigned>(n / 64), static_cast<unsigned>(m / 64)},
          .block = {128}},
         mma_gemm, n, k, a, b, c);
}

template <DeviceTarget T>
void launch_copy_misuse(T target, CopyMisuse misuse, const std::uint32_t* x, std::uint32_t* y) {
  launch(target, {.name = "copy_misuse", .grid = {1}, .block = {32}}, copy_misuse, misuse, x, y);
}

template void launch_mma(Target, MmaCase, const std::uint32_t*, const std::uint32_t*,
                         const std::uint32_t*, std::uint32_t*);
template void launch_mma_tile(Target, MmaCase, const std::uint32_t*, const std::uint32_t*, float*);
template void launch_ldmatrix(Target, int, bool, const std::uint8_t*, const int*, std::uint32_t*);
template void launch_stmatrix(Target, int, bool, const std::uint32_t*, const int*, std::uint8_t*);
template void launch_staged_copy(Target, unsigned, unsigned, const std::uint32_t*, std::uint32_t*);
template void launch_mma_gemm(Target, int, int, int, const std::uint16_t*, const std::uint16_t*,
                              float*);
template void launch_copy_misuse(Target, CopyMisuse, const std::uint32_t*, std::uint32_t*);

}  // namespace roundoff

// The rung wgmma: tiles by TMA, mbarriers, wgmma.
//
// Against sm80: a warpgroup multiplies 64 x 128 with one instruction, straight from shared memory,
// so that no fragment goes through registers (sm80 spends an ldmatrix on every four mma) and the
// sums are all that registers hold; one thread asks for a whole tile where each asked for its
// pieces, edges are zeros that TMA writes, and addresses cost nothing. To gain: the tensor cores'
// own rate, twice what mma.sync reaches on this architecture. What is left for the next rung: the
// same threads copy, multiply and write, so that the tensor cores wait at each tile's ends, and a
// block barrier a step.
//
// Layout and numerics: sm90.cuh; a block of two groups of 128 threads a tile of 128 x 128, three
// stages, so that two blocks share a multiprocessor and one's ends overlap the other's products.
// Results go through the stages' memory when it is free.
#include "kernels/gemm/sm90_launch.cuh"

namespace roundoff {

using WgmmaShape = Sm90Shape<1, 2, 128, 1, 3, 2, false>;

ROUNDOFF_DEVICE_NAMESPACE {
  template <class T, Major kMajorA, Major kMajorB>
  __global__ void __launch_bounds__(256, 2)
      product_wgmma(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                    const __grid_constant__ Sm90Grid g, const __grid_constant__ ProductOutput out) {
#if ROUNDOFF_HOPPER
    using S = WgmmaShape;
    ROUNDOFF_DYNAMIC_SHARED(shared);
    ROUNDOFF_SHARED(Mbarrier, full, [S::kStages]);
    const unsigned group = threadIdx.x / 128;
    const Sm90Unit u = unit_at<S>(g, blockIdx.x, 0);
    const Sm90Place at{g.size.m, g.size.n, u.result * g.parts + u.part, u.row0 + group * 64,
                       u.column0};
    Sm90Staging staging{shared + group * S::kStaging, kBarrierGroup + group, threadIdx.x % 128};
    if (threadIdx.x == 0) {
      for (int i = 0; i < S::kStages; ++i) mbarrier_init(&full[i], 1);
      fence_mbarrier_init();
    }
    float sums[1][S::kN / 2];
    begin_sums<S::kN>(out, g.addend_runs, at, staging, sums[0]);
    // What the sums began with lay where copies land now.
    fence_proxy_async();
    __syncthreads();

    const MatrixLoad<S, T, kMajorA, kMajorB> load{&a, &b, g, 0};
    const auto fetch = [&](unsigned step) {
      const unsigned stage = (step - u.first) % S::kStages;
      mbarrier_arrive_expect_tx(&full[stage], S::kStageBytes);
      load(shared + stage * S::kStageBytes, &full[stage], u, step);
    };
    if (threadIdx.x == 0)
      for (unsigned step = u.first; step < u.last && step < u.first + S::kStages; ++step)
        fetch(step);
    Sm90Ring<S> ring{shared, full, nullptr};
    if (u.first < u.last) {
      unsigned step = u.first;
      do {
        mbarrier_wait(&full[ring.stage], ring.parity);
        if constexpr (sizeof(T) == 4)
          round_stage<S::kStageBytes>(ring.memory(), threadIdx.x, 256, kBarrierAll);
        multiply_stage<S, T, kMajorA, kMajorB>(ring.memory() + group * 64 * kLineBytes,
                                               ring.memory() + S::kBytesA, sums);
        // While this step's products run, the stage of the one before is filled again.
        wgmma_wait<1>();
        __syncthreads();
        if (threadIdx.x == 0 && step > u.first && step + S::kStages - 1 < u.last)
          fetch(step + S::kStages - 1);
        ring.advance();
      } while (++step < u.last);
      wgmma_wait<0>();
    }
    __syncthreads();
    end_sums<S::kN>(out, at, staging, sums[0]);
#else
    __trap();
#endif
  }

  template <class E, DeviceTarget T>
  void launch_wgmma_of(T target, const ProductProblem& p, const MatrixSource& a,
                       const MatrixSource& b, const ProductOutput& out, Scratch& scratch) {
    using namespace sm90_detail;
    using S = WgmmaShape;
    launch_parts<S, kStageDepth<E>>(
        target, p, matrix_steps<E>(p), out, scratch, [&](Sm90Grid g, const ProductOutput& to) {
          g.one_a = a.stride == 0;
          g.one_b = b.stride == 0;
          const unsigned batch = std::max(p.size.results, p.size.terms);
          TensorMap map_a{}, map_b{};
          if (g.all_steps != 0) {
            map_a = encode_tiled(operand_map(a, batch, S::kM));
            map_b = encode_tiled(operand_map(b, batch, S::kShareB));
          }
          with_majors<E>(a, b, [&]<Major kMajorA, Major kMajorB> {
            launch(target,
                   with_arithmetic({.name = p.name,
                                    .grid = {g.units},
                                    .block = {256},
                                    .shared = S::kStages * S::kStageBytes},
                                   p.arithmetic),
                   product_wgmma<E, kMajorA, kMajorB>, map_a, map_b, g, to);
          });
        });
  }

}  // namespace

template <DeviceTarget T>
void launch_wgmma(T target, const ProductProblem& p, const MatrixSource& a, const MatrixSource& b,
                  const ProductOutput& out, Scratch& scratch, const Sm90Options&) {
  const std::string why = sm90_refuses(p, a, b, out);
  ROUNDOFF_CHECK(why.empty(), p.name, why);
  if (p.size.m == 0 || p.size.n == 0 || p.size.results == 0) return;
  switch (a.dtype) {
    case DType::fp16:
      return launch_wgmma_of<Half>(target, p, a, b, out, scratch);
    case DType::bf16:
      return launch_wgmma_of<BFloat16>(target, p, a, b, out, scratch);
    default:
      return launch_wgmma_of<Tf32>(target, p, a, b, out, scratch);
  }
}

template void launch_wgmma(Target, const ProductProblem&, const MatrixSource&, const MatrixSource&,
                           const ProductOutput&, Scratch&, const Sm90Options&);

}  // namespace roundoff

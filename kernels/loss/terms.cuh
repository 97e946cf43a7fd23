// The last step of every loss: terms (loss, weight) of rows or of blocks of elements, added in fp64
// in a fixed order, become the loss and the mean's divisor.
// A block adds 8192 terms: each of 256 threads every 256th of them in order, then the tree of
// kernels/reduce/block.cuh. The sums of blocks are terms again until one block holds them all.
#pragma once

#include "kernels/base/scratch.h"
#include "kernels/loss/reduction.h"
#include "kernels/reduce/block.cuh"
#include "kernels/simt/operand.cuh"

namespace roundoff {

inline constexpr std::int64_t kTermsPerBlock = 8192;

ROUNDOFF_DEVICE_NAMESPACE {
  using LossTerm = reduce::Values<double, 2>;

  // The sum of terms [first, first + kTermsPerBlock) that are below n, on every thread.
  ROUNDOFF_DEVICE LossTerm sum_terms(const LossTerm* __restrict__ terms, std::int64_t n,
                                     std::int64_t first, LossTerm* partial) {
    reduce::Shared<LossTerm> shared(partial);
    LossTerm sum{{0, 0}};
    const std::int64_t end = first + kTermsPerBlock < n ? first + kTermsPerBlock : n;
    for (std::int64_t i = first + threadIdx.x; i < end; i += 256)
      sum = reduce::Sum{}(sum, terms[i]);
    return reduce::row<256>(sum, reduce::Sum{}, shared);
  }

  namespace {

  __global__ void __launch_bounds__(256)
      loss_terms(const LossTerm* terms, std::int64_t n, LossTerm* sums) {
    ROUNDOFF_SHARED(LossTerm, partial, [reduce::shared_size(256)]);
    const LossTerm sum = sum_terms(terms, n, blockIdx.x * kTermsPerBlock, partial);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  }

  // `loss` is not written for Reduction::none.
  __global__ void __launch_bounds__(256)
      loss_total(const LossTerm* terms, std::int64_t n, Reduction reduction, AnyResult loss,
                 AnyResult valid) {
    ROUNDOFF_SHARED(LossTerm, partial, [reduce::shared_size(256)]);
    const LossTerm sum = sum_terms(terms, n, 0, partial);
    if (threadIdx.x != 0) return;
    const double total = sum.at[0];
    const double divisor = sum.at[1];
    if (loss.wanted() && reduction == Reduction::sum) loss.put(0, total);
    if (loss.wanted() && reduction == Reduction::mean)
      loss.put(0, divisor == 0 ? 0.0 : total / divisor);
    if (valid.wanted()) valid.put(0, divisor);
  }

  inline void launch_loss_total(Target target, const LossTerm* terms, std::int64_t n,
                                Reduction reduction, const AnyResult& loss, const AnyResult& valid,
                                Scratch& scratch) {
    while (n > kTermsPerBlock) {
      const std::int64_t blocks = (n + kTermsPerBlock - 1) / kTermsPerBlock;
      auto* sums = scratch.get<LossTerm>(blocks);
      launch(target,
             {.name = "loss_terms", .grid = {static_cast<unsigned>(blocks)}, .block = {256}},
             loss_terms, terms, n, sums);
      terms = sums;
      n = blocks;
    }
    launch(target, {.name = "loss_total", .grid = {1}, .block = {256}}, loss_total, terms, n,
           reduction, loss, valid);
  }

  }  // namespace
}  // namespace

}  // namespace roundoff

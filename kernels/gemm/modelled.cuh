// Products whose sums are in fp16 on a device (Accumulator::fp16, kernels/gemm/modelled.h): every
// multiply-add rounded, in the order of the operands. For studies, not for speed. The modelled
// tensor cores need no kernel of their own: a launch says whose arithmetic it wants.
#pragma once

#include <cstdint>

#include "kernels/gemm/modelled.h"
#include "kernels/gemm/output.cuh"
#include "kernels/gemm/problem.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  // The double nearest to value on fp16's grid (RNE), infinite from 65520 up: adding and taking
  // away 1.5 * 2^52 quanta rounds to a multiple of one.
  ROUNDOFF_DEVICE double rounded_to_half(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    if ((bits & 0x7FF0000000000000U) == 0x7FF0000000000000U) return value;
    const double binade = std::bit_cast<double>(bits & 0x7FF0000000000000U);
    const double quantum = binade * 0x1p-10 > 0x1p-24 ? binade * 0x1p-10 : 0x1p-24;
    const double shift = quantum * 0x1.8p52;
    const double rounded = (value + shift) - shift;
    const double magnitude = rounded < 0 ? -rounded : rounded;
    const std::uint64_t sign = bits & 0x8000000000000000U;
    const std::uint64_t limited = magnitude > 65504.0 ? std::uint64_t{0x7FF0000000000000U}
                                                      : std::bit_cast<std::uint64_t>(magnitude);
    return std::bit_cast<double>(sign | limited);
  }

  // x + y rounded to odd: a later rounding to fewer bits is then the only one (Boldo and Melquiond,
  // IEEE Trans. Computers 57(4), 2008).
  ROUNDOFF_DEVICE double add_to_odd(double x, double y) {
    const double sum = x + y;
    const double y_part = sum - x;
    const double error = (x - (sum - y_part)) + (y - y_part);
    const auto bits = std::bit_cast<std::uint64_t>(sum);
    if (error == 0 || (bits & 0x7FF0000000000000U) == 0x7FF0000000000000U || (bits & 1) != 0)
      return sum;
    const bool away_from_zero = (error > 0) == (sum > 0);
    return std::bit_cast<double>(away_from_zero ? bits + 1 : bits - 1);
  }

  // An fp16 accumulator: each multiply-add rounded once to fp16, in order. One element a thread;
  // for studies, not for speed.
  template <class A, class B>
  __global__ void __launch_bounds__(128) half_chains(ProductSizes z, A a, B b, ProductOutput out) {
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= static_cast<std::int64_t>(z.m) * z.n * z.results) return;
    const auto column = static_cast<unsigned>(index % z.n);
    const auto row = static_cast<unsigned>(index / z.n % z.m);
    const auto result = static_cast<unsigned>(index / z.n / z.m);
    double sum = 0;
    for (unsigned term = 0; term < z.terms; ++term) {
      a.select(result + term);
      b.select(result + term);
      for (unsigned k = 0; k < z.depth; ++k) {
        const auto x = static_cast<double>(a.value(row, k));
        const auto y = static_cast<double>(b.value(column, k));
        sum = rounded_to_half(add_to_odd(x * y, sum));
      }
    }
    write_element(out, result, row, column, static_cast<float>(sum));
  }

}  // namespace

template <class T, class A, class B>
void launch_half_chains(T target, const ProductProblem& p, const A& a, const B& b,
                        const ProductOutput& out) {
  const std::int64_t elements = static_cast<std::int64_t>(p.size.m) * p.size.n * p.size.results;
  launch(target,
         {.name = p.name,
          .grid = {device_extent(p.name, "the number of blocks", (elements + 127) / 128)},
          .block = {128}},
         half_chains<A, B>, p.size, a, b, out);
}

}  // namespace roundoff

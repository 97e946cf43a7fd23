// What the launchers of gemm and column_sums check before they run, on every target.
#pragma once

#include <initializer_list>
#include <string_view>

#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/gemm.h"

namespace roundoff {

// C as it is used.
struct GemmAddend {
  bool used = false;
  bool bias = false;  // [n], the same for every row
};

// Throws for what sums in order (SumOrder) refuse: other accumulators than fp32 and fp64, and an
// output to add to that is not of the type that operands of these types are summed in.
void check_in_order(std::string_view operation, Accumulator accumulator, const Out& y,
                    std::initializer_list<DType> operands);

// Throws for what gemm() refuses.
GemmAddend check_gemm(const GemmParams& p, const ConstView& a, const ConstView& b,
                      const ConstView& c, const Out& y);

// A batch that one larger product computes: rows that share B, or a sum of sums.
GemmParams merge_batch(GemmParams p, const GemmAddend& addend);

// Throws for what column_sums() refuses.
void check_column_sums(const ColumnSumsParams& p, const ConstView& x, const Out& y);

}  // namespace roundoff

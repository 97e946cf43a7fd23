// The sum of a matrix's rows, scaled: the gradient of everything that is added to each row.
#pragma once

#include <cstdint>

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

struct ColumnSumsParams {
  std::int64_t rows = 0, columns = 0;  // each may be 0
  double scale = 1;
  Accumulator accumulator = Accumulator::fp32;
  // One chain over the rows, y[j] = fma(scale, x[i, j], y[j]), which begins with what y holds: the
  // same bits however the rows are cut into calls, on every device. As in SumOrder (kernel.h).
  bool in_order = false;
  // In order: so many rows at a time (a sample's) are summed from 0, and these sums are then added
  // to what y holds one after the other, as by SumOrder::by_matrix. 0: one chain. Divides rows.
  std::int64_t group = 0;
};

// y[j] = scale * (sum over i of x[i, j]); x holds [rows, columns], y holds [columns], any floating
// types. Summed in fp32 (fp64 where x is fp64 or the accumulator says so) in blocks of 128 rows and
// then over the blocks, so that a term meets at most 128 + rows / 128 roundings; the accumulators
// of modelled.h sum products with 1, in order. Scaled, then rounded once. Throws for views of other
// sizes.
void column_sums(Ref, const ColumnSumsParams& params, const ConstView& x, const Out& y,
                 Scratch& scratch);

// The same on a device.
template <DeviceTarget T>
void column_sums(T target, const ColumnSumsParams& params, const ConstView& x, const Out& y,
                 Scratch& scratch);

}  // namespace roundoff

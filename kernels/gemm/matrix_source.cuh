// How a launcher describes a matrix in memory as a source of a product (source.cuh).
#pragma once

#include "kernels/base/view.h"
#include "kernels/gemm/source.cuh"

namespace roundoff {

// One operand whose rows are the result's rows (or columns): [rows, k] where the sum's axis is
// contiguous, else [k, rows].
inline MatrixSource matrix_source(const ConstView& v, std::int64_t rows, std::int64_t k,
                                  bool depth_contiguous, std::int64_t stride, bool tf32) {
  MatrixSource s;
  s.data = v.data;
  s.dtype = v.dtype;
  s.tf32 = tf32;
  s.depth_contiguous = depth_contiguous;
  s.rows = static_cast<unsigned>(rows);
  s.depth = static_cast<unsigned>(k);
  s.pitch = depth_contiguous ? k : rows;
  s.stride = stride;
  s.aligned = lanes_aligned(v.data, v.dtype, 4, s.pitch, stride);
  s.chunked =
      lanes_aligned(v.data, v.dtype, static_cast<int>(16 / size_of(v.dtype)), s.pitch, stride);
  return s;
}

}  // namespace roundoff

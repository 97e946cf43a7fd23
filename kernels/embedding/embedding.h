// Embedding: rows of a table by index.
//   y[i, :] = table[index[i], :]        dtable[r, :] += sum over i with index[i] = r of dy[i, :]
//
// table [V, D] of any floating dtype; index of any shape S, int64 or int32; y, dy [S..., D].
// Forward copies bits where y has the table's dtype. Backward adds rows in the order of `index`, in
// fp32 (fp64 where dtable is), straight onto what dtable holds: the sum has the same bits however a
// batch is cut. An index outside [0, V) is an error before anything is written.
#pragma once

#include <cstdint>

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

struct EmbeddingParams {
  std::int64_t padding_index = -1;  // this row gets no gradient; -1: every row does
};

void embedding_forward(Ref, const ConstView& table, const ConstView& index, const Out& y);
template <DeviceTarget T>
void embedding_forward(T target, const ConstView& table, const ConstView& index, const Out& y);
// dtable [V, D]; overwrite starts from zeros, and may be asked of 16-bit types (summed in fp32).
void embedding_backward(Ref, const EmbeddingParams& params, const ConstView& index,
                        const ConstView& dy, const Out& dtable, Scratch& scratch);
// On a device indices are grouped by row first, in `scratch` of its memory; an index outside [0, V)
// is reported (kernels/base/device_error.h), gives zeros and gets no gradient.
template <DeviceTarget T>
void embedding_backward(T target, const EmbeddingParams& params, const ConstView& index,
                        const ConstView& dy, const Out& dtable, Scratch& scratch);

namespace detail {
// What the launchers throw for, but for the indices' values, which only the reference reads.
void check_embedding_forward(const ConstView& table, const ConstView& index, const Out& y);
void check_embedding_backward(const ConstView& index, const ConstView& dy, const Out& dtable);
}  // namespace detail

}  // namespace roundoff

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
#include "kernels/base/view.h"

namespace roundoff {

struct EmbeddingParams {
  std::int64_t padding_index = -1;  // this row gets no gradient; -1: every row does
};

void embedding_forward(Ref, const ConstView& table, const ConstView& index, const Out& y);
// dtable [V, D]; overwrite starts from zeros, and may be asked of 16-bit types (summed in fp32).
void embedding_backward(Ref, const EmbeddingParams& params, const ConstView& index,
                        const ConstView& dy, const Out& dtable, Scratch& scratch);

}  // namespace roundoff

// Embedding: rows of a table by index. Errors: kernels/embedding/embedding.h.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/context.h"

namespace roundoff {

// table [V, D]; index of any shape, int64 or int32, each in [0, V); the result is [index..., D] of
// the table's type. The row padding_index (negative: from the end) gets no gradient.
Tensor embedding(Context& context, const Tensor& table, const Tensor& index,
                 std::optional<std::int64_t> padding_index = {});

}  // namespace roundoff

// Operations that pick values: dropout given its mask, and embedding.
#pragma once

#include <optional>

#include "verify/oracle/base.h"

namespace roundoff::oracle {

// y = x / (1 - p) where kept, else exactly 0 whatever x is. The backward pass is the same function
// applied to dy. p = 1 gives zeros.
Values dropout(double p, In x, std::span<const std::uint8_t> kept);

// table [rows, width]; y[i] = table[index[i]]. Throws for an index outside [0, rows).
Values embedding(std::int64_t rows, std::int64_t width, In table,
                 std::span<const std::int64_t> index);
// dtable[r] = sum of dy[i] over the i with index[i] = r; 0 for r = padding_index.
Values embedding_backward(std::int64_t rows, std::int64_t width,
                          std::span<const std::int64_t> index, In dy,
                          std::optional<std::int64_t> padding_index = std::nullopt);

}  // namespace roundoff::oracle

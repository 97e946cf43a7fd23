#include "verify/oracle/select.h"

namespace roundoff::oracle {

Values dropout(double p, In x, std::span<const std::uint8_t> kept) {
  ROUNDOFF_CHECK(p >= 0 && p <= 1, "dropout oracle", "p is ", p, ", [0, 1] expected");
  ROUNDOFF_CHECK(kept.size() == x.size(), "dropout oracle", "mask has ", kept.size(), " values, ",
                 x.size(), " expected");
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] =
        kept[i] != 0 && p < 1 ? static_cast<double>(x[i] / (1 - static_cast<long double>(p))) : 0.0;
  return y;
}

namespace {

std::size_t checked(std::int64_t index, std::int64_t rows) {
  ROUNDOFF_CHECK(index >= 0 && index < rows, "embedding oracle", "index ", index, ", [0, ", rows,
                 ") expected");
  return at(index);
}

}  // namespace

Values embedding(std::int64_t rows, std::int64_t width, In table,
                 std::span<const std::int64_t> index) {
  check_size("embedding oracle", "table", table, rows * width);
  Values y;
  for (const std::int64_t i : index)
    for (std::size_t j = 0; j < at(width); ++j)
      y.push_back(table[checked(i, rows) * at(width) + j]);
  return y;
}

Values embedding_backward(std::int64_t rows, std::int64_t width,
                          std::span<const std::int64_t> index, In dy,
                          std::optional<std::int64_t> padding_index) {
  check_size("embedding oracle", "dy", dy, static_cast<std::int64_t>(index.size()) * width);
  Sums dtable = zeros(rows * width);
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] == padding_index) continue;
    for (std::size_t j = 0; j < at(width); ++j)
      dtable[checked(index[i], rows) * at(width) + j] += dy[i * at(width) + j];
  }
  return rounded(dtable);
}

}  // namespace roundoff::oracle

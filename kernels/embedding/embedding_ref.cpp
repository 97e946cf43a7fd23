#include "kernels/embedding/embedding.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/convert.h"

namespace roundoff {

namespace {

constexpr std::int64_t kBlock = 512;

std::int64_t index_at(const ConstView& index, std::int64_t i) {
  return index.dtype == DType::i64 ? index.as<std::int64_t>()[i] : index.as<std::int32_t>()[i];
}

void check_shapes(std::string_view operation, const Shape& table, const ConstView& index,
                  const Shape& rows) {
  ROUNDOFF_CHECK(table.rank() == 2, operation, "table has shape ", table, ", [V, D] expected");
  ROUNDOFF_CHECK(index.dtype == DType::i64 || index.dtype == DType::i32, operation, "index is ",
                 name(index.dtype), "; int64 or int32 expected");
  bool fits = rows.rank() == index.shape.rank() + 1 && rows[-1] == table[1];
  for (int a = 0; fits && a < index.shape.rank(); ++a) fits = rows[a] == index.shape[a];
  ROUNDOFF_CHECK(fits, operation, "index has shape ", index.shape, " and table ", table,
                 ", rows have shape ", rows);
}

// Returns the number of indices.
std::int64_t check_values(std::string_view operation, const Shape& table, const ConstView& index) {
  const std::int64_t n = index.numel();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t row = index_at(index, i);
    ROUNDOFF_CHECK(row >= 0 && row < table[0], operation, "index ", row, " at position ", i,
                   ", expected in [0, ", table[0], ")");
  }
  return n;
}

template <class T>
void scatter_add(const EmbeddingParams& params, const ConstView& index, const ConstView& dy,
                 std::int64_t n, std::int64_t width, T* sums) {
  T block[kBlock];
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t row = index_at(index, i);
    if (row == params.padding_index) continue;
    T* to = sums + row * width;
    for (std::int64_t j = 0; j < width; j += kBlock) {
      const std::int64_t m = std::min(kBlock, width - j);
      widen(dy, i * width + j, m, block);
      for (std::int64_t k = 0; k < m; ++k) to[j + k] += block[k];
    }
  }
}

template <class T>
void backward(const EmbeddingParams& params, const ConstView& index, const ConstView& dy,
              std::int64_t n, const Out& dtable, Scratch& scratch) {
  const std::int64_t size = dtable.view.numel();
  const std::int64_t width = dtable.view.shape[1];
  if (dtable.view.dtype == dtype_of<T>) {
    T* sums = dtable.view.as<T>();
    if (dtable.write == Write::overwrite) std::fill_n(sums, size, T(0));
    scatter_add(params, index, dy, n, width, sums);
    return;
  }
  const Scratch::Frame frame(scratch);
  T* sums = scratch.get<T>(size);
  if (dtable.write == Write::overwrite)
    std::fill_n(sums, size, T(0));
  else
    widen(dtable.view, 0, size, sums);
  scatter_add(params, index, dy, n, width, sums);
  narrow(sums, size, Out(dtable.view), 0);
}

}  // namespace

void detail::check_embedding_forward(const ConstView& table, const ConstView& index, const Out& y) {
  ROUNDOFF_CHECK(is_floating(table.dtype), "embedding", "table is ", name(table.dtype),
                 "; a floating type expected");
  check_shapes("embedding", table.shape, index, y.view.shape);
}

void detail::check_embedding_backward(const ConstView& index, const ConstView& dy,
                                      const Out& dtable) {
  const View& to = dtable.view;
  ROUNDOFF_CHECK(is_floating(dy.dtype) && is_floating(to.dtype), "embedding_backward",
                 "does not take ", name(dy.dtype), " to ", name(to.dtype),
                 "; floating types expected");
  ROUNDOFF_CHECK(dtable.write == Write::overwrite || !is_16bit(to.dtype), "embedding_backward",
                 "cannot accumulate into ", name(to.dtype), "; fp32 or fp64 expected");
  check_shapes("embedding_backward", to.shape, index, dy.shape);
}

void embedding_forward(Ref, const ConstView& table, const ConstView& index, const Out& y) {
  detail::check_embedding_forward(table, index, y);
  const std::int64_t n = check_values("embedding", table.shape, index);
  if (!y.wanted) return;
  const std::int64_t width = table.shape[1];
  if (width == 0) return;
  const bool copy = table.dtype == y.view.dtype && y.write == Write::overwrite;
  const std::size_t from_bytes = static_cast<std::size_t>(width) * size_of(table.dtype);
  const std::size_t to_bytes = static_cast<std::size_t>(width) * size_of(y.view.dtype);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::byte* from =
        table.as<std::byte>() + static_cast<std::size_t>(index_at(index, i)) * from_bytes;
    std::byte* to = y.view.as<std::byte>() + static_cast<std::size_t>(i) * to_bytes;
    if (copy)
      std::memcpy(to, from, from_bytes);
    else
      convert(Ref{}, {from, table.dtype, Shape{width}},
              Out(View{to, y.view.dtype, Shape{width}}, y.write));
  }
}

void embedding_backward(Ref, const EmbeddingParams& params, const ConstView& index,
                        const ConstView& dy, const Out& dtable, Scratch& scratch) {
  if (!dtable.wanted) return;
  const View& to = dtable.view;
  detail::check_embedding_backward(index, dy, dtable);
  const std::int64_t n = check_values("embedding_backward", to.shape, index);
  if (to.dtype == DType::fp64 || dy.dtype == DType::fp64)
    backward<double>(params, index, dy, n, dtable, scratch);
  else
    backward<float>(params, index, dy, n, dtable, scratch);
}

}  // namespace roundoff

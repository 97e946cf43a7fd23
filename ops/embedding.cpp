#include "ops/embedding.h"

#include <array>

#include "kernels/embedding/embedding.h"
#include "ops/op.h"

namespace roundoff {

namespace {

// Inputs: table, index.
struct Embedding {
  static constexpr std::string_view name = "embedding";
  static constexpr unsigned in_order_inputs = 0b01;
  using Params = EmbeddingParams;

  static void forward(ForwardFrame& f) {
    const Tensor &table = f.in(0), &index = f.in(1);
    std::array<std::int64_t, kMaxRank> extents{};
    const int rank = index.shape().rank();
    for (int a = 0; a < rank; ++a) extents[static_cast<std::size_t>(a)] = index.shape()[a];
    extents[static_cast<std::size_t>(rank)] = table.shape()[1];
    const Tensor& y =
        f.out(0, Shape({extents.data(), static_cast<std::size_t>(rank) + 1}), table.dtype());
    f.run([&](auto target) { embedding_forward(target, table.view(), index.view(), y.view()); });
    f.save(0, index);
  }
  static void backward(BackwardFrame& f) {
    f.run([&](auto target) {
      embedding_backward(target, f.params<Params>(), f.saved(0).view(), f.grad_out(0).view(),
                         f.grad_in(0), f.context().scratch);
    });
  }
};

}  // namespace

Tensor embedding(Context& context, const Tensor& table, const Tensor& index,
                 std::optional<std::int64_t> padding_index) {
  ROUNDOFF_CHECK(table.defined() && index.defined(), Embedding::name, "table or index is absent");
  ROUNDOFF_CHECK(table.shape().rank() == 2, Embedding::name, "table has shape ", table.shape(),
                 ", [V, D] expected");
  ROUNDOFF_CHECK(index.shape().rank() < kMaxRank, Embedding::name, "index has shape ",
                 index.shape(), ", at most ", kMaxRank - 1, " axes expected");
  EmbeddingParams params;
  if (padding_index) {
    const std::int64_t rows = table.shape()[0];
    ROUNDOFF_CHECK(*padding_index >= -rows && *padding_index < rows, Embedding::name,
                   "padding index ", *padding_index, " for ", rows, " rows");
    params.padding_index = *padding_index < 0 ? *padding_index + rows : *padding_index;
  }
  return record<Embedding>(context, {table, index}, params);
}

}  // namespace roundoff

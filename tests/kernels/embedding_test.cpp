#include "kernels/embedding/embedding.h"

#include <doctest/doctest.h>

#include <bit>
#include <vector>

#include "kernels/base/convert.h"

using namespace roundoff;

namespace {

template <class T>
View view(std::vector<T>& v, const Shape& shape) {
  return {v.data(), dtype_of<T>, shape};
}

}  // namespace

TEST_CASE("embedding gathers rows, bits unchanged") {
  std::vector<float> table{1, 2, 3, 4, std::bit_cast<float>(0x7F800001U), 6};
  std::vector<std::int64_t> index{2, 0, 2, 1};
  std::vector<float> y(8);
  embedding_forward(Ref{}, view(table, Shape{3, 2}), view(index, Shape{2, 2}),
                    view(y, Shape{2, 2, 2}));
  const std::size_t from[] = {4, 5, 0, 1, 4, 5, 2, 3};
  for (std::size_t i = 0; i < 8; ++i)
    CHECK(std::bit_cast<std::uint32_t>(y[i]) == std::bit_cast<std::uint32_t>(table[from[i]]));
  // 32-bit indices, and a conversion on the way.
  std::vector<std::int32_t> small{1};
  std::vector<Half> half(2);
  embedding_forward(Ref{}, view(table, Shape{3, 2}), view(small, Shape{}), view(half, Shape{2}));
  CHECK(static_cast<float>(half[0]) == 3.0F);
  CHECK(static_cast<float>(half[1]) == 4.0F);
}

TEST_CASE("embedding's gradient adds rows in order, in fp32") {
  std::vector<std::int64_t> index{2, 0, 2, 2};
  std::vector<float> dy{1, 2, 10, 20, 100, 200, 1000, 2000};
  std::vector<float> dtable(6, 5.0F);
  Scratch scratch;
  const auto run = [&](const EmbeddingParams& params, Write write) {
    embedding_backward(Ref{}, params, view(index, Shape{4}), view(dy, Shape{4, 2}),
                       Out(view(dtable, Shape{3, 2}), write), scratch);
  };
  run({}, Write::overwrite);
  CHECK(dtable == std::vector<float>{10, 20, 0, 0, 1101, 2202});
  run({}, Write::accumulate);
  CHECK(dtable == std::vector<float>{20, 40, 0, 0, 2202, 4404});
  run({.padding_index = 2}, Write::overwrite);
  CHECK(dtable == std::vector<float>{10, 20, 0, 0, 0, 0});
}

TEST_CASE("a 16-bit gradient of 4096 small rows does not stall") {
  const std::int64_t n = 4096;
  std::vector<std::int64_t> index(static_cast<std::size_t>(n), 1);
  std::vector<BFloat16> dy(static_cast<std::size_t>(n), BFloat16(1.0F)), dtable(2);
  Scratch scratch;
  embedding_backward(Ref{}, {}, view(index, Shape{n}), view(dy, Shape{n, 1}),
                     view(dtable, Shape{2, 1}), scratch);
  CHECK(static_cast<float>(dtable[0]) == 0.0F);
  CHECK(static_cast<float>(dtable[1]) == 4096.0F);
}

TEST_CASE("the sum has the same bits however the batch is cut") {
  const std::int64_t n = 50;
  std::vector<std::int64_t> index;
  std::vector<float> dy;
  for (std::int64_t i = 0; i < n; ++i) {
    index.push_back(i % 3);
    dy.push_back(1.0F / static_cast<float>(i + 1));
  }
  std::vector<float> whole(3), cut(3);
  Scratch scratch;
  embedding_backward(Ref{}, {}, view(index, Shape{n}), view(dy, Shape{n, 1}),
                     view(whole, Shape{3, 1}), scratch);
  std::int64_t first = 0;
  for (const std::int64_t m : {7, 1, 42}) {
    embedding_backward(Ref{}, {}, ConstView{index.data() + first, DType::i64, Shape{m}},
                       ConstView{dy.data() + first, DType::fp32, Shape{m, 1}},
                       Out(view(cut, Shape{3, 1}), Write::accumulate), scratch);
    first += m;
  }
  CHECK(cut == whole);
}

TEST_CASE("an index out of range, and shapes that do not fit, change nothing") {
  std::vector<float> table(6), y(4, 9.0F);
  Scratch scratch;
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{3}, std::int64_t{1} << 40}) {
    std::vector<std::int64_t> index{0, bad};
    CHECK_THROWS_WITH_AS(
        embedding_forward(Ref{}, view(table, Shape{3, 2}), view(index, Shape{2}),
                          view(y, Shape{2, 2})),
        concat("[embedding] index ", bad, " at position 1, expected in [0, 3)").c_str(), Error);
    CHECK(y == std::vector<float>(4, 9.0F));
    CHECK_THROWS_AS(embedding_backward(Ref{}, {}, view(index, Shape{2}), view(y, Shape{2, 2}),
                                       view(table, Shape{3, 2}), scratch),
                    Error);
  }
  std::vector<std::int64_t> index{0, 1};
  std::vector<float> floats{0, 1};
  CHECK_THROWS_AS(
      embedding_forward(Ref{}, view(table, Shape{6}), view(index, Shape{2}), view(y, Shape{2, 2})),
      Error);
  CHECK_THROWS_AS(embedding_forward(Ref{}, view(table, Shape{3, 2}), view(floats, Shape{2}),
                                    view(y, Shape{2, 2})),
                  Error);
  CHECK_THROWS_AS(
      embedding_forward(Ref{}, view(table, Shape{3, 2}), view(index, Shape{2}), view(y, Shape{4})),
      Error);
  // Nothing to gather.
  std::vector<std::int64_t> none;
  std::vector<float> nothing;
  CHECK_NOTHROW(embedding_forward(Ref{}, view(table, Shape{3, 2}), view(none, Shape{0}),
                                  view(nothing, Shape{0, 2})));
}

#include "engine/tensor.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/engine/support.h"

using namespace roundoff;
using namespace roundoff::testing;

TEST_CASE("tensors from values: rounded once to each type, in row-major order") {
  Context ctx;
  for (const DType dtype :
       {DType::fp64, DType::fp32, DType::fp16, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    CAPTURE(name(dtype));
    const Tensor t = tensor(ctx, {0, 1, 2, 3, 4, 5}, {2, 3}, dtype);
    CHECK(t.dtype() == dtype);
    CHECK(t.shape() == Shape{2, 3});
    CHECK(t.numel() == 6);
    CHECK(t.bytes() == 6 * size_of(dtype));
    CHECK(t.to_vector() == Values{0, 1, 2, 3, 4, 5});
    CHECK(t.at(4) == 4);
  }
  // 2049 is a tie in fp16 and 257 one in bf16; in fp64 the first is just above it.
  CHECK(tensor(ctx, {std::nextafter(2049.0, 3000.0)}, {}, DType::fp16).item() == 2050);
  CHECK(tensor(ctx, {2049}, {}, DType::fp16).item() == 2048);
  CHECK(tensor(ctx, {257}, {}, DType::bf16).item() == 256);
  CHECK(tensor(ctx, {0x1p63 * 0.5, -0x1p63}, {2}, DType::i64).at(1) == -0x1p63);
  CHECK(tensor(ctx, {255}, {1}, DType::u8).item() == 255);
  CHECK(std::isnan(tensor(ctx, {kNaN}, {}, DType::fp16).item()));
}

TEST_CASE("tensors from values refuse what does not fit") {
  Context ctx;
  CHECK_THROWS_WITH_AS(tensor(ctx, {1, 2, 3}, {2}), "[tensor] 3 values for shape [2]", Error);
  CHECK_THROWS_AS(tensor(ctx, {}, {}), Error);
  CHECK_THROWS_AS(tensor(ctx, {1}, {0}), Error);
  // An integer that its type does not hold, or that is none, is no label.
  for (const double bad : {256.0, -1.0, 0.5, kNaN, kInf})
    CHECK_THROWS_AS(tensor(ctx, {bad}, {1}, DType::u8), Error);
  for (const double bad : {0x1p31, -0x1p31 - 1, 2.5, kNaN})
    CHECK_THROWS_AS(tensor(ctx, {bad}, {1}, DType::i32), Error);
  for (const double bad : {0x1p63, -0x1p63 * 1.5, 0.1, kNaN, -kInf})
    CHECK_THROWS_AS(tensor(ctx, {bad}, {1}, DType::i64), Error);
  CHECK(ctx.allocator.stats().total == 0);
}

TEST_CASE("zeros, scalars and tensors without elements") {
  Context ctx;
  // A block that held something else before.
  { tensor(ctx, Values(30, 7), {30}); }
  const Tensor z = Tensor::zeros(ctx.allocator, {5, 6}, DType::fp32, MemoryCategory::optimizer);
  CHECK(z.to_vector() == Values(30, 0));
  CHECK(ctx.allocator.stats().current[1] == 120);
  CHECK(tensor(ctx, {3}, {}).item() == 3);
  CHECK(tensor(ctx, {3}, {1, 1}).item() == 3);
  const Tensor none = tensor(ctx, {}, {3, 0});
  CHECK(none.defined());
  CHECK(none.numel() == 0);
  CHECK(none.to_vector().empty());
  CHECK_THROWS_AS(none.item(), Error);
  CHECK_THROWS_AS(none.at(0), Error);
}

TEST_CASE("element access stays inside, and an undefined tensor has none") {
  Context ctx;
  const Tensor t = tensor(ctx, {1, 2, 3}, {3});
  CHECK_THROWS_AS(t.at(-1), Error);
  CHECK_THROWS_AS(t.at(3), Error);
  CHECK_THROWS_WITH_AS(t.item(), "[tensor] one element expected, shape is [3]", Error);
  const Tensor undefined;
  CHECK(!undefined.defined());
  CHECK(!undefined.const_view().present);
  CHECK_THROWS_AS(undefined.item(), Error);
  CHECK_THROWS_AS(undefined.at(0), Error);
  CHECK_THROWS_AS(undefined.to_vector(), Error);
  CHECK_THROWS_AS(undefined.slice(0, {}), Error);
  CHECK_THROWS_AS(undefined.with_shape({1}), Error);
  CHECK_THROWS_AS(make_leaf(ctx.allocator, undefined), Error);
}

TEST_CASE("slices and other shapes share the storage") {
  Context ctx;
  const Tensor t = tensor(ctx, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 4}, DType::fp16);
  const Tensor row = t.slice(4, {4});
  CHECK(row.to_vector() == Values{4, 5, 6, 7});
  const Tensor inner = row.slice(1, {2, 1});
  CHECK(inner.to_vector() == Values{5, 6});
  inner.data<Half>()[0] = Half(50.0F);
  CHECK(t.at(5) == 50);
  CHECK(t.with_shape({2, 6}).at(5) == 50);
  CHECK(t.with_shape({12}).shape() == Shape{12});
  CHECK(t.slice(12, {0}).numel() == 0);
  CHECK(t.slice(3, {}).item() == 3);

  CHECK_THROWS_AS(t.with_shape({3, 3}), Error);
  CHECK_THROWS_AS(t.with_shape({}), Error);
  CHECK_THROWS_AS(t.slice(-1, {1}), Error);
  CHECK_THROWS_AS(t.slice(9, {4}), Error);
  CHECK_THROWS_AS(t.slice(13, {0}), Error);
  CHECK_THROWS_AS(t.slice(INT64_MAX, {1}), Error);
}

TEST_CASE("a copy shares storage, and storage lives as long as any of its tensors") {
  Tensor slice;
  {
    Context ctx;
    const Tensor t = tensor(ctx, {1, 2, 3, 4}, {4});
    const Tensor copy = t;
    copy.data<float>()[3] = 9;
    CHECK(t.at(3) == 9);
    slice = t.slice(3, {1});
  }
  CHECK(slice.item() == 9);
}

TEST_CASE("a shape whose bytes leave 64 bit is refused before it becomes a small block") {
  Context ctx;
  for (const DType dtype : {DType::fp64, DType::fp32, DType::fp16})
    CHECK_THROWS_AS(Tensor::empty(ctx.allocator, {std::int64_t{1} << 62}, dtype), Error);
  // 2^61 values of 8 bytes are 2^64 bytes, which is 0.
  CHECK_THROWS_AS(Tensor::empty(ctx.allocator, {std::int64_t{1} << 61}, DType::fp64), Error);
  CHECK(ctx.allocator.stats().system_allocations == 0);
}

TEST_CASE("leaves: the gradient's type and shape, absent at first, and what cannot be one") {
  Context ctx;
  for (const DType dtype : {DType::fp64, DType::fp32, DType::fp16, DType::bf16}) {
    const Tensor x = leaf(ctx, {1, 2, 3}, {3}, dtype, "x");
    CHECK(x.leaf()->name == "x");
    CHECK(x.leaf()->grad.dtype() == (dtype == DType::fp64 ? DType::fp64 : DType::fp32));
    CHECK(x.leaf()->grad.shape() == Shape{3});
    CHECK(!x.leaf()->has_grad);
    CHECK(x.to_vector() == Values{1, 2, 3});
    CHECK(x.detached().leaf() == nullptr);
    CHECK(x.slice(0, {1}).leaf() == nullptr);
    CHECK(x.with_shape({3, 1}).leaf() == nullptr);
  }
  CHECK_THROWS_AS(leaf(ctx, {1}, {1}, DType::i64), Error);
}

// dtypes, shapes, views, errors and scratch memory.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>

#include "kernels/base/check.h"
#include "kernels/base/dtype.h"
#include "kernels/base/scratch.h"
#include "kernels/base/view.h"

using namespace roundoff;

namespace {

constexpr DType kAll[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16,
                          DType::i64,  DType::i32,  DType::u8};

int evaluations = 0;
int count_evaluation() { return ++evaluations; }

}  // namespace

TEST_CASE("dtypes: size, name, kind, and the C++ type that each stores") {
  for (const DType d : kAll) {
    CHECK(parse_dtype(name(d)) == d);
    CHECK(size_of(d) > 0);
    CHECK(is_floating(d) == (d < DType::i64));
  }
  CHECK(size_of(DType::fp64) == sizeof(double));
  CHECK(size_of(DType::fp16) == sizeof(Half));
  CHECK(size_of(DType::bf16) == sizeof(BFloat16));
  CHECK(size_of(DType::u8) == 1);
  CHECK(is_16bit(DType::fp16));
  CHECK(is_16bit(DType::bf16));
  CHECK_FALSE(is_16bit(DType::fp32));
  static_assert(dtype_of<float> == DType::fp32 && dtype_of<std::int64_t> == DType::i64);
  CHECK_THROWS_WITH_AS(parse_dtype("half"),
                       "[dtype] unknown type 'half'; fp64, fp32, fp16, bf16, int64, int32 or "
                       "uint8 expected",
                       Error);
  CHECK_THROWS_AS(parse_dtype(""), Error);
}

TEST_CASE("widest: symmetric, and fp32 where neither 16-bit type holds the other") {
  CHECK(widest(DType::fp16, DType::fp16) == DType::fp16);
  CHECK(widest(DType::bf16, DType::bf16) == DType::bf16);
  CHECK(widest(DType::fp16, DType::bf16) == DType::fp32);
  CHECK(widest(DType::fp16, DType::fp32) == DType::fp32);
  CHECK(widest(DType::bf16, DType::fp64) == DType::fp64);
  for (const DType a : kAll)
    for (const DType b : kAll) CHECK(widest(a, b) == widest(b, a));
}

TEST_CASE("visit_floating calls with the storage type, and names who asked for another") {
  const auto size = [](DType d) {
    return visit_floating(d, "test", [&]<class T>() {
      CHECK(dtype_of<T> == d);
      return sizeof(T);
    });
  };
  for (const DType d : {DType::fp64, DType::fp32, DType::fp16, DType::bf16})
    CHECK(size(d) == size_of(d));
  CHECK_THROWS_WITH_AS(size(DType::i64),
                       "[test] does not take int64; fp64, fp32, fp16 or bf16 expected", Error);
}

TEST_CASE("errors: one line with the operation, its parts evaluated only when needed") {
  CHECK_THROWS_WITH_AS(
      ROUNDOFF_CHECK(false, "conv2d", "input channels ", 3, ", weight expects ", 4),
      "[conv2d] input channels 3, weight expects 4", Error);
  evaluations = 0;
  ROUNDOFF_CHECK(true, "conv2d", count_evaluation());
  CHECK(evaluations == 0);
  CHECK_THROWS_AS(ROUNDOFF_CHECK(false, "conv2d", count_evaluation()), Error);
  CHECK(evaluations == 1);
  static_assert(std::is_base_of_v<Error, UsageError>);
  CHECK(concat("a", 1, 'b', 2.5) == "a1b2.5");
}

TEST_CASE("shapes: rank 0, zero extents, negative axes, printing") {
  const Shape scalar;
  CHECK(scalar.rank() == 0);
  CHECK(scalar.numel() == 1);
  const Shape s{2, 3, 4};
  CHECK(s.rank() == 3);
  CHECK(s.numel() == 24);
  CHECK(s[0] == 2);
  CHECK(s[-1] == 4);
  CHECK(s == Shape{2, 3, 4});
  CHECK_FALSE(s == Shape{2, 3});
  CHECK_FALSE(s == Shape{2, 3, 5});
  CHECK(Shape{5, 0, 7}.numel() == 0);
  CHECK(s.normalize_axis(-3, "sum") == 0);
  CHECK(s.normalize_axis(2, "sum") == 2);
  CHECK_THROWS_WITH_AS(s.normalize_axis(3, "sum"),
                       "[sum] axis 3 is out of range for shape [2, 3, 4]", Error);
  CHECK_THROWS_AS(s.normalize_axis(-4, "sum"), Error);
  CHECK_THROWS_AS(scalar.normalize_axis(0, "sum"), Error);
  std::ostringstream out;
  out << s << scalar;
  CHECK(out.str() == "[2, 3, 4][]");
  Shape t = s;
  t.set(-1, 9);
  CHECK(t == Shape{2, 3, 9});
  CHECK(t.extents().size() == 3);
}

TEST_CASE("shapes refuse what cannot be") {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_AS(Shape({2, -1}), Error);
  CHECK_THROWS_AS(Shape({kMax, 2}), Error);
  CHECK_THROWS_AS(Shape({3037000500, 3037000500}), Error);
  CHECK_THROWS_AS(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
  CHECK(Shape({kMax}).numel() == kMax);
  CHECK(Shape({1, 1, 1, 1, 1, 1, 1, 2}).numel() == 2);
}

TEST_CASE("views: typed access, absent operands, outputs that nobody wants") {
  float data[6] = {1, 2, 3, 4, 5, 6};
  const View v{data, DType::fp32, Shape{2, 3}};
  const ConstView c = v;
  CHECK(c.present);
  CHECK(c.as<float>()[5] == 6.0F);
  CHECK(c.numel() == 6);
  CHECK_FALSE(ConstView::absent().present);
  CHECK_FALSE(Out().wanted);
  CHECK(Out(v).wanted);
  CHECK(Out(v).write == Write::overwrite);
  CHECK(Out(v, Write::accumulate).write == Write::accumulate);
}

TEST_CASE("scratch: aligned, given back by frames, no growth after the first round") {
  Scratch scratch;
  CHECK(scratch.capacity() == 0);
  const auto round = [&] {
    const Scratch::Frame outer(scratch);
    auto* a = scratch.get<double>(1000);
    CHECK(reinterpret_cast<std::uintptr_t>(a) % 64 == 0);
    a[999] = 7.0;
    void* inner_address = nullptr;
    {
      const Scratch::Frame inner(scratch);
      auto* b = scratch.get<char>(1);
      inner_address = b;
      *b = 'b';
      auto* big = scratch.get<float>(3 << 20);
      CHECK(reinterpret_cast<std::uintptr_t>(big) % 64 == 0);
      std::memset(big, 0, (std::size_t{3} << 20) * sizeof(float));
    }
    CHECK(a[999] == 7.0);
    CHECK(scratch.get<char>(1) == inner_address);  // the frame gave it back
    CHECK(scratch.get<int>(0) != nullptr);
    return a;
  };
  const double* first = round();
  const std::size_t held = scratch.capacity();
  for (int i = 0; i < 5; ++i) CHECK(round() == first);
  CHECK(scratch.capacity() == held);
}

TEST_CASE("scratch refuses negative and impossible sizes") {
  Scratch scratch;
  CHECK_THROWS_AS(scratch.get<float>(-1), Error);
  CHECK_THROWS_AS(scratch.get<double>(std::numeric_limits<std::int64_t>::max()), Error);
  CHECK(scratch.capacity() == 0);
}

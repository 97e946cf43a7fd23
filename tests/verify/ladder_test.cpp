#include "verify/ladder.h"

#include <algorithm>

#include "ops/conv2d.h"
#include "ops/matmul.h"
#include "tests/verify/rounding.h"

using namespace roundoff;
using oracle::Values;

TEST_CASE("how large whole numbers may be for their sums to be exact") {
  CHECK(exact_integer_limit(1, kFp16, kFp32, kFp16) == 45);   // 45^2 <= 2^11 < 46^2
  CHECK(exact_integer_limit(128, kFp16, kFp32, kFp16) == 4);  // 128 * 16 = 2^11
  CHECK(exact_integer_limit(129, kFp16, kFp32, kFp16) == 3);
  CHECK(exact_integer_limit(256, kBf16, kFp32, kBf16) == 1);
  CHECK(exact_integer_limit(257, kBf16, kFp32, kBf16) == 0);
  CHECK(exact_integer_limit(16, kFp8E4M3, kFp32, kFp32) == 16);
  const std::vector<double> v = small_integers(1000, 3, 7);
  CHECK(*std::min_element(v.begin(), v.end()) == -3);
  CHECK(*std::max_element(v.begin(), v.end()) == 3);
  CHECK(v == small_integers(1000, 3, 7));
  CHECK(v != small_integers(1000, 3, 8));
  CHECK(name(Rung::running_bound) == "running bound");
}

TEST_CASE("the first rung: products and convolutions of small whole numbers are exact") {
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
    const Format format = format_of(dtype);
    for (const std::int64_t k : {1, 7, 40, 200}) {
      const std::int64_t limit = exact_integer_limit(k, format, kFp32, format);
      REQUIRE(limit > 0);
      const oracle::MatmulParams p{.m = 9, .n = 11, .k = k};
      const Values a = small_integers(9 * k, limit, 1), b = small_integers(11 * k, limit, 2);
      Context c;
      const Tensor y = matmul(c, Tensor::from(c.allocator, a, {9, k}, dtype),
                              Tensor::from(c.allocator, b, {k, 11}, dtype));
      const Bound exact = exactly(oracle::matmul(p, a, b));
      CHECK(compare(y.view(), exact).holds);
      // One product left out shows, whichever it is.
      for (std::int64_t l = 0; l < k; ++l) {
        Values without = a;
        if (without[oracle::at(l)] == 0) continue;
        without[oracle::at(l)] = 0;
        CHECK_FALSE(compare(y.view(), exactly(oracle::matmul(p, without, b))).holds);
      }
    }
    const oracle::Conv2dParams p{
        .n = 1, .h = 6, .w = 6, .c = 3, .k = 4, .r = 3, .s = 3, .pad_h = 1, .pad_w = 1};
    const std::int64_t limit = exact_integer_limit(27, format, kFp32, format);
    const Values x = small_integers(p.x_size(), limit, 3), w = small_integers(p.w_size(), limit, 4);
    Context c;
    const Tensor y =
        conv2d(c, Tensor::from(c.allocator, x, {1, 6, 6, 3}, dtype),
               Tensor::from(c.allocator, w, {4, 3, 3, 3}, dtype), {}, {.padding = {1, 1}});
    CHECK(compare(y.view(), exactly(oracle::conv2d(p, x, w))).holds);
  }
}

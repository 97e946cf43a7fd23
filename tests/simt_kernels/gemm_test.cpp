#include "kernels/gemm/gemm.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/sum_bound.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/oracle/matmul.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kFloating[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};

std::vector<double> iota(std::int64_t n) {
  std::vector<double> v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), 0.0);
  return v;
}

// y after the device's gemm.
Array device_gemm(SimDevice& device, const GemmParams& p, const Array& a, const Array& b, Array y,
                  const Array* c = nullptr, Write write = Write::overwrite) {
  SimScratch scratch(device);
  {
    const Resident left(device, a), right(device, b);
    Resident result(device, y);
    if (c != nullptr) {
      const Resident addend(device, *c);
      gemm(device.target(), p, *left, *right, *addend, result.out(write), scratch);
    } else {
      gemm(device.target(), p, *left, *right, ConstView::absent(), result.out(write), scratch);
    }
    result.fetch();
  }
  CHECK(y.guards_intact());
  return y;
}

std::vector<double> gemm_values(const GemmParams& p, const Array& a, const Array& b, const Array& y,
                                const Array* c = nullptr, Write write = Write::overwrite) {
  static SimDevice device;
  return device_gemm(device, p, a, b, y, c, write).values();
}

// [rows, columns] as [columns, rows].
std::vector<double> transposed(const std::vector<double>& v, std::int64_t rows,
                               std::int64_t columns) {
  std::vector<double> t(v.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      t[oracle::at(j * rows + i)] = v[oracle::at(i * columns + j)];
  return t;
}

std::vector<double> whole(std::int64_t n, std::mt19937& random, int largest) {
  std::vector<double> v(static_cast<std::size_t>(n));
  for (double& x : v)
    x = static_cast<double>(random() % static_cast<unsigned>(2 * largest + 1)) - largest;
  return v;
}

}  // namespace

TEST_CASE("case 19 [GEMM] beta = 0 must not read C") {
  for (const DType dtype : kFloating) {
    const Array a(dtype, {2, 3}, iota(6));
    const Array b(dtype, {3, 4}, iota(12));
    const std::vector<double> poison = {kNaN, kInf, kNaN, -kInf, kNaN, kInf, kNaN, kNaN};
    const Array c(dtype, {2, 4}, poison);
    const std::vector<double> want = {20, 23, 26, 29, 56, 68, 80, 92};
    CHECK(gemm_values({.m = 2, .n = 4, .k = 3}, a, b, Array(dtype, {2, 4}, poison), &c) == want);

    const GemmParams edges{.m = 17, .n = 23, .k = 31};
    const Array y(dtype, {17, 23}, std::vector<double>(17 * 23, kNaN));
    const Array ones_a(dtype, {17, 31}, ones(17 * 31));
    const Array ones_b(dtype, {31, 23}, ones(31 * 23));
    CHECK(gemm_values(edges, ones_a, ones_b, y, &y) == std::vector<double>(17 * 23, 31.0));
  }
}

TEST_CASE("case 20 [GEMM] alpha = 0 and K = 0") {
  const std::vector<double> poison(6, kNaN);
  for (const DType dtype : kFloating) {
    const Array a(dtype, {2, 3}, poison);
    const Array b(dtype, {3, 2}, poison);
    const Array c(dtype, {2, 2}, std::vector<double>(4, 3.0));
    const Array y(dtype, {2, 2});
    CHECK(gemm_values({.m = 2, .n = 2, .k = 3, .alpha = 0}, a, b, y) == std::vector<double>(4));
    CHECK(gemm_values({.m = 2, .n = 2, .k = 3, .alpha = 0, .beta = 2}, a, b, y, &c) ==
          std::vector<double>(4, 6.0));
    const Array empty_a(dtype, {2, 0});
    const Array empty_b(dtype, {0, 2});
    CHECK(gemm_values({.m = 2, .n = 2, .k = 0}, empty_a, empty_b, y) == std::vector<double>(4));
    CHECK(gemm_values({.m = 2, .n = 2, .k = 0, .beta = 1}, empty_a, empty_b, y, &c) ==
          std::vector<double>(4, 3.0));
    // Empty results launch nothing.
    SimDevice device;
    CHECK(
        device_gemm(device, {.m = 0, .n = 2, .k = 3}, Array(dtype, {0, 3}), b, Array(dtype, {0, 2}))
            .size() == 0);
    CHECK(
        device_gemm(device, {.m = 2, .n = 0, .k = 3}, a, Array(dtype, {3, 0}), Array(dtype, {2, 0}))
            .size() == 0);
    CHECK(device_gemm(device, {.batch = 0, .m = 2, .n = 2, .k = 3}, a, b, Array(dtype, {0, 2, 2}))
              .size() == 0);
    CHECK(device.emulator().counters().launches == 0);
  }
  // An accumulating output keeps what it holds.
  const Array held(DType::fp32, {2, 2}, std::vector<double>(4, 5.0));
  CHECK(gemm_values({.m = 2, .n = 2, .k = 0}, Array(DType::fp16, {2, 0}),
                    Array(DType::fp16, {0, 2}), held, nullptr,
                    Write::accumulate) == std::vector<double>(4, 5.0));
}

TEST_CASE("case 21 [GEMM] odd M, N, K and unaligned leading dimensions") {
  struct Size {
    std::int64_t m, n, k;
  };
  for (const std::int64_t offset : {0, 1}) {
    for (const DType dtype : kFloating) {
      for (const Size s : {Size{2, 3, 4}, {1, 105, 107}, {1, 705, 705}, {36, 36, 64}}) {
        const Array a(dtype, {s.m, s.k}, ones(s.m * s.k), offset);
        const Array b(dtype, {s.k, s.n}, ones(s.k * s.n), offset);
        const double want = dtype == DType::bf16 && s.k == 705 ? 704 : static_cast<double>(s.k);
        CHECK(gemm_values({.m = s.m, .n = s.n, .k = s.k}, a, b, Array(dtype, {s.m, s.n}, offset)) ==
              std::vector<double>(oracle::at(s.m * s.n), want));
      }
      std::vector<double> a(17 * 31), b(31 * 23);
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>((7 * i) % 11) - 5;
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>((5 * i) % 13) - 6;
      for (int flags = 0; flags < 4; ++flags) {
        const bool ta = (flags & 1) != 0, tb = (flags & 2) != 0;
        const Array left = ta ? Array(dtype, {31, 17}, transposed(a, 17, 31), offset)
                              : Array(dtype, {17, 31}, a, offset);
        const Array right = tb ? Array(dtype, {23, 31}, transposed(b, 31, 23), offset)
                               : Array(dtype, {31, 23}, b, offset);
        const std::vector<double> y =
            gemm_values({.m = 17, .n = 23, .k = 31, .trans_a = ta, .trans_b = tb}, left, right,
                        Array(dtype, {17, 23}, offset));
        CHECK(std::accumulate(y.begin(), y.end(), 0.0) == -32);
        const std::vector<double> magnitude = absolute(y);
        CHECK(std::accumulate(magnitude.begin(), magnitude.end(), 0.0) == 11264);
        CHECK(*std::max_element(magnitude.begin(), magnitude.end()) == 80);
        CHECK(y.front() == 55);
        CHECK(y.back() == -27);
      }
    }
  }
}

TEST_CASE("case 22 [GEMM] accumulator must be fp32") {
  const auto dot = [](DType dtype, const std::vector<double>& a, const std::vector<double>& b,
                      DType out) {
    const auto k = static_cast<std::int64_t>(a.size());
    // Both ways: as one chain and, where A is transposed, in parts.
    const double chain = gemm_values({.m = 1, .n = 1, .k = k}, Array(dtype, {1, k}, a),
                                     Array(dtype, {k, 1}, b), Array(out, {1, 1}))[0];
    CHECK(gemm_values({.m = 1, .n = 1, .k = k, .trans_a = true}, Array(dtype, {k, 1}, a),
                      Array(dtype, {k, 1}, b), Array(out, {1, 1}))[0] == chain);
    return chain;
  };
  for (const DType out : {DType::fp16, DType::fp32}) {
    CHECK(dot(DType::fp16, {2048, 1, 1}, ones(3), out) == 2050);
    CHECK(dot(DType::fp16, ones(4096), ones(4096), out) == 4096);
    CHECK(dot(DType::fp16, {256, 256}, {256, -256}, out) == 0);
  }
  for (const DType out : {DType::bf16, DType::fp32}) {
    CHECK(dot(DType::bf16, {256, 1, 1}, ones(3), out) == 258);
    CHECK(dot(DType::bf16, ones(4096), ones(4096), out) == 4096);
  }
  CHECK(dot(DType::fp16, ones(2049), ones(2049), DType::fp16) == 2048);
}

TEST_CASE("gemm on a device: products of integers are exact, in every tile and under schedules") {
  struct Size {
    std::int64_t batch, m, n, k;
  };
  std::mt19937 random(17);
  for (std::uint64_t schedule = 0; schedule < kSchedules; ++schedule) {
    SimDevice device(schedule);
    for (const Size s : {Size{1, 1, 1, 1},
                         {2, 31, 33, 17},
                         {1, 65, 32, 40},
                         {3, 64, 64, 16},
                         {1, 255, 257, 33},
                         {1, 33, 3, 600},
                         {1, 1500, 1000, 5}}) {
      for (int flags = 0; flags < 4; ++flags) {
        if (s.m * s.n > 100000 && (schedule > 1 || flags != static_cast<int>(schedule))) continue;
        const oracle::MatmulParams o{.batch = s.batch,
                                     .m = s.m,
                                     .n = s.n,
                                     .k = s.k,
                                     .trans_a = (flags & 1) != 0,
                                     .trans_b = (flags & 2) != 0};
        const std::vector<double> a = whole(o.a_size(), random, 4),
                                  b = whole(o.b_size(), random, 4);
        const DType dtype = kFloating[random() % 4];
        const GemmParams p{.batch = s.batch,
                           .m = s.m,
                           .n = s.n,
                           .k = s.k,
                           .trans_a = o.trans_a,
                           .trans_b = o.trans_b,
                           .stride_a = s.m * s.k,
                           .stride_b = s.k * s.n};
        CHECK(device_gemm(device, p, Array(dtype, {o.a_size()}, a), Array(dtype, {o.b_size()}, b),
                          Array(DType::fp32, {o.y_size()}))
                  .values() == oracle::matmul(o, a, b));
      }
    }
  }
}

TEST_CASE("gemm on a device agrees with the oracle within the bound, over everything it takes") {
  std::mt19937 random(20240601);
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random() % from.size()));
  };
  double worst = 0;
  for (int trial = 0; trial < 300; ++trial) {
    oracle::MatmulParams o;
    o.batch = pick({1, 1, 2, 3});
    o.m = pick({0, 1, 2, 3, 7, 16, 33, 65, 130});
    o.n = pick({0, 1, 2, 5, 8, 17, 32, 70});
    o.k = pick({0, 1, 2, 3, 9, 16, 31, 100, 257, 600});
    o.trans_a = random() % 2 == 0;
    o.trans_b = random() % 2 == 0;
    o.shared_a = random() % 3 == 0;
    o.shared_b = random() % 3 == 0;
    o.alpha = std::array{1.0, 1.0, 0.5, -2.0}[random() % 4];
    o.beta = std::array{0.0, 1.0, 0.5}[random() % 3];
    const DType da = kFloating[random() % 4], db = kFloating[random() % 4],
                dc = kFloating[random() % 4], dy = kFloating[random() % 4];
    const std::int64_t c_size = std::array{o.n, o.m * o.n, o.y_size()}[random() % 3];
    const bool accumulate = !is_16bit(dy) && random() % 2 == 0;
    const bool wide_acc = random() % 4 == 0;
    const std::int64_t offset = pick({0, 0, 1, 3});
    CAPTURE(trial);

    const auto values = [&](std::int64_t n, DType d) { return normal(n, d, random); };
    const std::vector<double> a = values(o.a_size(), da), b = values(o.b_size(), db);
    const std::vector<double> c = values(c_size, dc);
    const std::vector<double> held = values(o.y_size(), dy);
    std::vector<double> whole_c(oracle::at(o.y_size()));
    for (std::size_t i = 0; i < whole_c.size(); ++i) whole_c[i] = c[i % c.size()];

    const GemmParams p{.batch = o.batch,
                       .m = o.m,
                       .n = o.n,
                       .k = o.k,
                       .trans_a = o.trans_a,
                       .trans_b = o.trans_b,
                       .alpha = o.alpha,
                       .beta = o.beta,
                       .accumulator = wide_acc ? Accumulator::fp64 : Accumulator::fp32,
                       .stride_a = o.shared_a ? 0 : o.m * o.k,
                       .stride_b = o.shared_b ? 0 : o.k * o.n,
                       .stride_c = c_size == o.y_size() ? o.m * o.n : 0};
    const Array left(da, {o.a_size()}, a, offset), right(db, {o.b_size()}, b, offset);
    const Array addend(dc, {static_cast<std::int64_t>(c.size())}, c, offset);
    const std::vector<double> got =
        gemm_values(p, left, right, Array(dy, {o.batch, o.m, o.n}, held, offset), &addend,
                    accumulate ? Write::accumulate : Write::overwrite);

    std::vector<double> want = oracle::matmul(o, a, b, whole_c);
    oracle::MatmulParams magnitude = o;
    magnitude.alpha = std::abs(o.alpha);
    std::vector<double> sums =
        oracle::matmul(magnitude, absolute(a), absolute(b), absolute(whole_c));
    if (accumulate) {
      for (std::size_t i = 0; i < want.size(); ++i) {
        want[i] += held[i];
        sums[i] += std::abs(held[i]);
      }
    }
    const bool wide =
        wide_acc || da == DType::fp64 || db == DType::fp64 || (o.beta != 0 && dc == DType::fp64);
    const double ratio =
        worst_ratio(got, want, sums, o.k + 4, wide ? DType::fp64 : DType::fp32, dy);
    CHECK(ratio <= 1);
    worst = std::max(worst, ratio);
  }
  MESSAGE("largest error / bound: ", worst);
}

TEST_CASE("gemm on a device: C may be the output itself") {
  const Array a(DType::fp16, {2, 2}, std::vector<double>{1, 2, 3, 4});
  static SimDevice device;
  for (const DType dtype : kFloating) {
    for (const Accumulator accumulator : {Accumulator::fp32, Accumulator::fp16}) {
      for (const double alpha : {1.0, 0.5}) {
        Array y(dtype, {2, 2}, std::vector<double>{10, 20, 30, 40});
        SimScratch scratch(device);
        const Resident left(device, a);
        Resident result(device, y);
        gemm(device.target(),
             {.m = 2, .n = 2, .k = 2, .alpha = alpha, .beta = 2, .accumulator = accumulator}, *left,
             *left, *result, result.out(), scratch);
        result.fetch();
        CHECK(y.values() == std::vector<double>{20 + 7 * alpha, 40 + 10 * alpha, 60 + 15 * alpha,
                                                80 + 22 * alpha});
      }
    }
  }
}

TEST_CASE("gemm on a device sums over a batch into one matrix") {
  std::mt19937 random(3);
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (int flags = 0; flags < 16; ++flags) {
      const bool ta = (flags & 1) != 0, tb = (flags & 2) != 0;
      const bool shared_a = (flags & 4) != 0, shared_b = (flags & 8) != 0;
      const std::int64_t batch = 3, m = 4, n = 5, k = 150;
      const std::vector<double> a = whole((shared_a ? 1 : batch) * m * k, random, 3);
      const std::vector<double> b = whole((shared_b ? 1 : batch) * k * n, random, 3);
      const oracle::MatmulParams o{.batch = batch,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .trans_a = ta,
                                   .trans_b = tb,
                                   .shared_a = shared_a,
                                   .shared_b = shared_b};
      const std::vector<double> each = oracle::matmul(o, a, b);
      std::vector<double> want(20);
      for (std::size_t i = 0; i < each.size(); ++i) want[i % 20] += each[i];
      const GemmParams p{.batch = batch,
                         .m = m,
                         .n = n,
                         .k = k,
                         .trans_a = ta,
                         .trans_b = tb,
                         .stride_a = shared_a ? 0 : m * k,
                         .stride_b = shared_b ? 0 : k * n,
                         .sum_batch = true};
      CHECK(gemm_values(p, Array(dtype, {static_cast<std::int64_t>(a.size())}, a),
                        Array(dtype, {static_cast<std::int64_t>(b.size())}, b),
                        Array(DType::fp32, {m, n})) == want);
    }
  }
}

TEST_CASE("gemm on a device with tf32 rounds fp32 operands, and those alone") {
  const std::vector<double> a = {1 + 0x1p-11, 1 + 0x1p-10, 1 + 3 * 0x1p-11};
  const std::vector<double> identity = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  const GemmParams p{.m = 1, .n = 3, .k = 3, .tf32 = true};
  const Array right(DType::fp32, {3, 3}, identity);
  CHECK(gemm_values(p, Array(DType::fp32, {1, 3}, a), right, Array(DType::fp32, {1, 3})) ==
        std::vector<double>{1, 1 + 0x1p-10, 1 + 0x1p-9});
  CHECK(gemm_values(p, Array(DType::fp64, {1, 3}, a), right, Array(DType::fp64, {1, 3})) == a);
}

TEST_CASE("gemm widens every fp16 and bf16 pattern exactly") {
  for (const DType dtype : {DType::fp16, DType::bf16}) {
    constexpr std::int64_t kPatterns = 65536;
    Array x(dtype, {kPatterns, 1});
    for (std::int64_t i = 0; i < kPatterns; ++i)
      x.view().as<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
    const std::vector<double> got =
        gemm_values({.m = kPatterns, .n = 1, .k = 1}, x, Array(DType::fp32, {1, 1}, {1.0}),
                    Array(DType::fp32, {kPatterns, 1}));
    const std::vector<double> want = x.values();
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < want.size(); ++i)
      wrong += std::isnan(want[i]) ? !std::isnan(got[i]) : got[i] != want[i];
    CHECK(wrong == 0);
  }
}

TEST_CASE("gemm applies an activation before its one rounding, on the reference and on a device") {
  const std::vector<double> x = {-3, -0.5, 0, 0.25, 2, kNaN, kInf, -kInf};
  const Array a(DType::fp32, {8, 1}, x), one(DType::fp32, {1, 1}, {1.0});
  const auto n = static_cast<std::int64_t>(x.size());
  for (const Activation f : {Activation::relu, Activation::gelu}) {
    for (const DType dtype : kFloating) {
      const GemmParams p{.m = n, .n = 1, .k = 1, .activation = f};
      Array y(dtype, {n, 1});
      Scratch scratch;
      gemm(Ref{}, p, *a, *one, ConstView::absent(), y.out(), scratch);
      const std::vector<double> got = gemm_values(p, a, one, Array(dtype, {n, 1}));
      for (std::int64_t i = 0; i < n; ++i) {
        const double v = x[oracle::at(i)];
        double want = v <= 0 ? 0 : v;
        if (f == Activation::gelu) want = v == -kInf ? 0 : v * 0.5 * std::erfc(-v * std::sqrt(0.5));
        for (const double r : {y[i], got[oracle::at(i)]}) {
          if (std::isnan(want)) {
            CHECK(std::isnan(r));
          } else if (std::isinf(v) || f == Activation::relu) {
            CHECK(r == want);
          } else {
            // Argument, erfc within an ulp either way, two products, the rounding.
            CHECK(std::abs(r - want) <=
                  tolerance(want, std::abs(want) * (1 + 2 * v * v), 6, DType::fp32, dtype));
          }
        }
      }
    }
  }
  Array y(DType::fp32, {8, 1});
  Scratch scratch;
  CHECK_THROWS_AS(gemm(Ref{}, {.m = 8, .n = 1, .k = 1, .activation = Activation::relu}, *a, *one,
                       ConstView::absent(), y.out(Write::accumulate), scratch),
                  Error);
}

TEST_CASE("a sum on a device is one chain: cut along k and continued, it has the same bits") {
  std::mt19937 random(5);
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const std::int64_t m = 37, n = 41, k = 90;
    const std::vector<double> a = normal(k * m, dtype, random), b = normal(k * n, dtype, random);
    const auto rows = [&](const std::vector<double>& v, std::int64_t width, std::int64_t first,
                          std::int64_t count) {
      const auto begin = v.begin() + static_cast<std::ptrdiff_t>(first * width);
      return Array(dtype, {count, width},
                   std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(count * width)));
    };
    const GemmParams p{.m = m, .n = n, .k = k, .trans_a = true};
    const std::vector<double> at_once =
        gemm_values(p, rows(a, m, 0, k), rows(b, n, 0, k), Array(DType::fp32, {m, n}));
    for (const std::int64_t cut : {1, 7, 16, 45, 89}) {
      GemmParams part = p;
      part.k = cut;
      const std::vector<double> begun =
          gemm_values(part, rows(a, m, 0, cut), rows(b, n, 0, cut), Array(DType::fp32, {m, n}));
      part.k = k - cut;
      CHECK(gemm_values(part, rows(a, m, cut, k - cut), rows(b, n, cut, k - cut),
                        Array(DType::fp32, {m, n}, begun), nullptr, Write::accumulate) == at_once);
    }
  }
}

TEST_CASE("a row of a product on a device does not depend on the others") {
  std::mt19937 random(6);
  const std::int64_t m = 200, n = 70, k = 300;
  const std::vector<double> a = normal(m * k, DType::fp16, random);
  const Array b(DType::fp16, {n, k}, normal(k * n, DType::fp16, random));
  const std::vector<double> all =
      gemm_values({.m = m, .n = n, .k = k, .trans_b = true}, Array(DType::fp16, {m, k}, a), b,
                  Array(DType::fp32, {m, n}));
  for (const std::int64_t rows : {1, 5, 33}) {
    const std::vector<double> few = gemm_values(
        {.m = rows, .n = n, .k = k, .trans_b = true},
        Array(DType::fp16, {rows, k},
              std::vector<double>(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(rows * k))),
        b, Array(DType::fp32, {rows, n}));
    CHECK(std::equal(few.begin(), few.end(), all.begin()));
  }
}

TEST_CASE("gemm on a device refuses what does not fit, before it launches") {
  SimDevice device;
  Scratch scratch;
  const Array a(DType::fp32, {2, 3}, ones(6)), b(DType::fp32, {3, 4}, ones(12)),
      integers(DType::i32, {2, 3});
  Array y(DType::fp32, {2, 4}), small(DType::fp32, {2, 3}), half(DType::fp16, {2, 4});
  const GemmParams p{.m = 2, .n = 4, .k = 3};
  const ConstView none = ConstView::absent();
  const auto run = [&](const GemmParams& params, const ConstView& left, const ConstView& right,
                       const ConstView& c, const Out& out) {
    gemm(device.target(), params, left, right, c, out, scratch);
  };
  CHECK_THROWS_WITH_AS(run(p, *a, *a, none, y.view()),
                       "[gemm] B of shape [2, 3] holds 6 values, 1 x [3, 4] needs 12", Error);
  CHECK_THROWS_AS(run(p, *b, *b, none, small.view()), Error);
  CHECK_THROWS_AS(run(p, *a, *b, none, Out(half.view(), Write::accumulate)), Error);
  CHECK_THROWS_AS(run({.m = -1, .n = 4, .k = 3}, *a, *b, none, y.view()), Error);
  CHECK_THROWS_AS(run(p, *integers, *b, none, y.view()), Error);
  CHECK_THROWS_WITH_AS(run({.m = 2, .n = 4, .k = 3, .accumulator = Accumulator::v100},
                           ConstView{a.view().data, DType::bf16, {2, 3}},
                           ConstView{b.view().data, DType::bf16, {3, 4}}, none, y.view()),
                       "[gemm] accumulator v100 takes fp16 operands, bf16 given", Error);
  run(p, *a, *b, none, Out());  // not wanted
  CHECK(device.emulator().counters().launches == 0);
}

TEST_CASE("gemm on a device: a small product takes a few warps") {
  SimDevice device;
  device_gemm(device, {.m = 16, .n = 16, .k = 576, .trans_b = true},
              Array(DType::fp32, {16, 576}, ones(16 * 576)),
              Array(DType::fp32, {16, 576}, ones(16 * 576)), Array(DType::fp32, {16, 16}));
  CHECK(device.emulator().counters().threads <= 64);
}

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "ops/conv2d.h"
#include "ops/matmul.h"
#include "ops/pool.h"
#include "tests/kernels/array.h"
#include "tests/kernels/sum_bound.h"
#include "verify/oracle/conv2d.h"
#include "verify/oracle/matmul.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

using Values = std::vector<double>;
constexpr DType kFloating[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};

Tensor leaf(Context& ctx, const Values& values, const Shape& shape, DType dtype) {
  return make_leaf(ctx.allocator, Tensor::from(ctx.allocator, values, shape, dtype));
}
Values grad(const Tensor& t) { return t.leaf()->grad.to_vector(); }
DType grad_dtype(const Tensor& t) { return t.leaf()->grad.dtype(); }
void backward(Context& ctx, const Tensor& y, const Values& seed) {
  ctx.tape.backward(ctx, y, Tensor::from(ctx.allocator, seed, y.shape(), y.dtype()));
}

Shape joined(const std::vector<std::int64_t>& lead, std::int64_t rows, std::int64_t columns) {
  std::vector<std::int64_t> extents = lead;
  extents.insert(extents.end(), {rows, columns});
  return Shape(extents);
}

// The index of the matrix of an operand with leading axes `own` at position i of the broadcast
// leading axes `lead`.
std::int64_t matrix_at(std::int64_t i, const std::vector<std::int64_t>& lead,
                       const std::vector<std::int64_t>& own) {
  std::int64_t index = 0, step = 1;
  for (std::size_t axis = lead.size(); axis-- > 0;) {
    const std::int64_t position = i % lead[axis];
    i /= lead[axis];
    if (axis + own.size() < lead.size()) continue;
    const std::int64_t extent = own[axis + own.size() - lead.size()];
    if (extent != 1) index += position * step;
    step *= extent;
  }
  return index;
}

struct MatmulCase {
  std::vector<std::int64_t> lead, lead_a, lead_b;
  oracle::MatmulParams one;  // batch 1
};

Values slice(const Values& v, std::int64_t index, std::int64_t size) {
  if (v.empty()) return {};
  return {v.begin() + index * size, v.begin() + (index + 1) * size};
}
void add_to(Values& sum, std::int64_t index, const Values& part) {
  for (std::size_t i = 0; i < part.size(); ++i)
    sum[static_cast<std::size_t>(index) * part.size() + i] += part[i];
}

struct Expected {
  Values y, da, db;
};
Expected expected(const MatmulCase& t, const Values& a, const Values& b, const Values& dy) {
  Expected e;
  e.da.resize(a.size());
  e.db.resize(b.size());
  std::int64_t matrices = 1;
  for (const std::int64_t n : t.lead) matrices *= n;
  for (std::int64_t i = 0; i < matrices; ++i) {
    const std::int64_t ia = matrix_at(i, t.lead, t.lead_a), ib = matrix_at(i, t.lead, t.lead_b);
    const Values one_a = slice(a, ia, t.one.a_size()), one_b = slice(b, ib, t.one.b_size());
    const Values y = oracle::matmul(t.one, one_a, one_b);
    e.y.insert(e.y.end(), y.begin(), y.end());
    const oracle::MatmulGradients g =
        oracle::matmul_backward(t.one, one_a, one_b, slice(dy, i, t.one.y_size()));
    add_to(e.da, ia, g.a);
    add_to(e.db, ib, g.b);
  }
  return e;
}

}  // namespace

TEST_CASE("matmul: values and gradients over transposes, leading axes that broadcast, types") {
  std::mt19937 random(77);
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random() % from.size()));
  };
  for (int trial = 0; trial < 300; ++trial) {
    CAPTURE(trial);
    MatmulCase t;
    const auto rank = static_cast<std::size_t>(pick({0, 1, 1, 2, 3, 4}));
    t.lead_a.resize(static_cast<std::size_t>(random() % (rank + 1)));
    t.lead_b.resize(rank);
    if (random() % 2 == 0) std::swap(t.lead_a, t.lead_b);
    for (std::size_t i = 0; i < rank; ++i) {
      const std::int64_t extent = pick({0, 1, 2, 2, 3, 3, 4});
      t.lead.push_back(extent);
      const auto set = [&](std::vector<std::int64_t>& own, bool stretch) {
        if (i + own.size() >= rank) own[i + own.size() - rank] = stretch ? 1 : extent;
      };
      const auto which = random() % 3;  // neither, a, or b has 1 there
      set(t.lead_a, which == 1);
      set(t.lead_b, which == 2);
      const bool both = i + t.lead_a.size() >= rank && i + t.lead_b.size() >= rank;
      if (!both && which != 0) {
        set(t.lead_a, false);
        set(t.lead_b, false);
      }
    }
    oracle::MatmulParams& o = t.one;
    o.m = pick({0, 1, 2, 5});
    o.n = pick({0, 1, 3, 4});
    o.k = pick({0, 1, 2, 6});
    o.trans_a = random() % 2 == 0;
    o.trans_b = random() % 2 == 0;
    o.alpha = std::array{1.0, 1.0, 0.5, 0.0}[random() % 4];
    const DType dtype = kFloating[random() % 4];
    const DType acc = widest(dtype, DType::fp32);
    const Shape sa = o.trans_a ? joined(t.lead_a, o.k, o.m) : joined(t.lead_a, o.m, o.k);
    const Shape sb = o.trans_b ? joined(t.lead_b, o.n, o.k) : joined(t.lead_b, o.k, o.n);
    const Shape sy = joined(t.lead, o.m, o.n);
    // c: none, [n], [m, n], or whole.
    const auto kind = random() % 4;
    const Shape sc = kind == 1 ? Shape{o.n} : kind == 2 ? Shape{o.m, o.n} : sy;
    const auto beta = static_cast<double>(pick({1, 1, 2, 0}));

    const Values a = normal(sa.numel(), dtype, random), b = normal(sb.numel(), dtype, random),
                 c = normal(sc.numel(), DType::fp32, random),
                 dy = normal(sy.numel(), dtype, random);
    Context ctx;
    const Tensor ta = leaf(ctx, a, sa, dtype), tb = leaf(ctx, b, sb, dtype);
    const Tensor tc = kind == 0 ? Tensor() : leaf(ctx, c, sc, DType::fp32);
    const Tensor y =
        matmul(ctx, ta, tb,
               {.trans_a = o.trans_a, .trans_b = o.trans_b, .alpha = o.alpha, .beta = beta}, tc);
    REQUIRE(y.shape() == sy);
    CHECK(y.dtype() == dtype);

    Expected want = expected(t, a, b, dy);
    MatmulCase magnitude = t;
    const Values aa = absolute(a), ab = absolute(b), ay = absolute(dy);
    Expected sums = expected(magnitude, aa, ab, ay);
    Values dc(c.size()), dc_sums(c.size());
    if (kind != 0) {
      for (std::size_t i = 0; i < want.y.size(); ++i) {
        want.y[i] += beta * c[i % c.size()];
        sums.y[i] += beta * std::abs(c[i % c.size()]);
        dc[i % c.size()] += beta * dy[i];
        dc_sums[i % c.size()] += beta * ay[i];
      }
    }
    CHECK(worst_ratio(y.to_vector(), want.y, sums.y, o.k + 4, acc, dtype) <= 1);
    backward(ctx, y, dy);
    const std::int64_t matrices = y.numel() == 0 ? 1 : y.numel() / (o.m * o.n);
    CHECK(worst_ratio(grad(ta), want.da, sums.da, matrices * (o.n + 1) + 3, acc, grad_dtype(ta)) <=
          1);
    CHECK(worst_ratio(grad(tb), want.db, sums.db, matrices * (o.m + 1) + 3, acc, grad_dtype(tb)) <=
          1);
    if (kind != 0)
      CHECK(worst_ratio(grad(tc), dc, dc_sums, matrices * o.m + 3, acc, DType::fp32) <= 1);
  }
}

TEST_CASE("linear: values and gradients, leading axes, with and without a bias") {
  std::mt19937 random(78);
  for (const DType dtype : kFloating) {
    const DType acc = widest(dtype, DType::fp32);
    for (const Shape& sx :
         {Shape{5, 7}, Shape{7}, Shape{2, 3, 7}, Shape{0, 7}, Shape{3, 0}, Shape{1, 1}}) {
      for (const bool biased : {false, true}) {
        const std::int64_t in = sx[-1], out = 4;
        std::int64_t rows = 1;
        for (int i = 0; i + 1 < sx.rank(); ++i) rows *= sx[i];
        const Values x = normal(sx.numel(), dtype, random), w = normal(out * in, dtype, random),
                     bias = normal(out, DType::fp32, random),
                     dy = normal(rows * out, dtype, random);
        Context ctx;
        const Tensor tx = leaf(ctx, x, sx, dtype), tw = leaf(ctx, w, {out, in}, dtype);
        const Tensor tb = biased ? leaf(ctx, bias, {out}, DType::fp32) : Tensor();
        const Tensor y = linear(ctx, tx, tw, tb);
        CHECK(y.dtype() == dtype);
        CHECK(y.shape().rank() == sx.rank());
        CHECK(y.shape()[-1] == out);

        const oracle::MatmulParams o{
            .m = rows, .n = out, .k = in, .trans_b = true, .beta = biased ? 1.0 : 0.0};
        Values c(oracle::at(rows * out));
        for (std::size_t i = 0; i < c.size(); ++i) c[i] = bias[i % bias.size()];
        CHECK(worst_ratio(y.to_vector(), oracle::matmul(o, x, w, c),
                          oracle::matmul(o, absolute(x), absolute(w), absolute(c)), in + 2, acc,
                          dtype) <= 1);
        backward(ctx, y, dy);
        const oracle::MatmulGradients g = oracle::matmul_backward(o, x, w, dy);
        const oracle::MatmulGradients s =
            oracle::matmul_backward(o, absolute(x), absolute(w), absolute(dy));
        CHECK(worst_ratio(grad(tx), g.a, s.a, out + 1, acc, grad_dtype(tx)) <= 1);
        CHECK(worst_ratio(grad(tw), g.b, s.b, rows + 1, acc, grad_dtype(tw)) <= 1);
        if (!biased) continue;
        Values db(oracle::at(out)), db_sums(oracle::at(out));
        for (std::size_t i = 0; i < dy.size(); ++i) {
          db[i % db.size()] += dy[i];
          db_sums[i % db.size()] += std::abs(dy[i]);
        }
        CHECK(worst_ratio(grad(tb), db, db_sums, rows + 1, acc, DType::fp32) <= 1);
      }
    }
  }
}

TEST_CASE("weight gradients add up in fp32: 4096 micro-batches of one bf16 row") {
  Context ctx;
  AutocastScope autocast(ctx, DType::bf16);
  const Tensor w = leaf(ctx, {1}, {1, 1}, DType::fp32), b = leaf(ctx, {0}, {1}, DType::fp32);
  const Tensor x = Tensor::from(ctx.allocator, Values{1}, {1, 1}, DType::fp32);
  for (int i = 0; i < 4096; ++i) {
    ctx.tape.clear();
    backward(ctx, linear(ctx, x, w, b), {1});
  }
  CHECK(grad(w) == Values{4096});
  CHECK(grad(b) == Values{4096});
}

TEST_CASE("under autocast operands are rounded to 16 bit, the bias and the sum are not") {
  for (const DType low : {DType::fp16, DType::bf16}) {
    Context ctx;
    AutocastScope autocast(ctx, low);
    // 0.1 is not representable; 2^-20 vanishes against 1 in any 16-bit sum.
    const double rounded = Array(low, {1}, Values{0.1}).values()[0];
    const Tensor x = leaf(ctx, {0.1}, {1, 1}, DType::fp32), w = leaf(ctx, {1}, {1, 1}, DType::fp32);
    CHECK(linear(ctx, x, w).item() == rounded);
    CHECK(linear(ctx, x, w).dtype() == low);
    CHECK(matmul(ctx, x, w).item() == rounded);
    const Tensor image = Tensor::from(ctx.allocator, Values{0.1}, {1, 1, 1, 1}, DType::fp32);
    const Tensor kernel = Tensor::from(ctx.allocator, Values{1}, {1, 1, 1, 1}, DType::fp32);
    CHECK(conv2d(ctx, image, kernel).item() == rounded);
    CHECK(conv2d(ctx, image, kernel).dtype() == low);
    // x w + b = 1 - (1 - 2^-20): a bias rounded to 16 bit would give 0.
    const Tensor one = leaf(ctx, {1}, {1, 1}, DType::fp32);
    const Tensor near = leaf(ctx, {-1 + 0x1p-20}, {1}, DType::fp32);
    CHECK(linear(ctx, one, one, near).item() == 0x1p-20);
    CHECK(matmul(ctx, one, one, {}, near).item() == 0x1p-20);
    CHECK(conv2d(ctx, kernel, kernel, near).item() == 0x1p-20);
    CHECK(max_pool2d(ctx, image, {.kernel = {1, 1}, .stride = {1, 1}}).dtype() == DType::fp32);
  }
}

TEST_CASE("conv2d: values and gradients, fp32 slots and 16-bit activations") {
  std::mt19937 random(79);
  for (const DType dtype : kFloating) {
    const DType acc = widest(dtype, DType::fp32);
    const oracle::Conv2dParams o{.n = 2,
                                 .h = 6,
                                 .w = 5,
                                 .c = 4,
                                 .k = 6,
                                 .r = 3,
                                 .s = 2,
                                 .stride_h = 2,
                                 .pad_h = 1,
                                 .pad_w = 1,
                                 .dilation_w = 2,
                                 .groups = 2};
    const Values x = normal(o.x_size(), dtype, random), w = normal(o.w_size(), dtype, random),
                 bias = normal(o.k, DType::fp32, random), dy = normal(o.y_size(), dtype, random);
    Context ctx;
    const Tensor tx = leaf(ctx, x, {2, 6, 5, 4}, dtype), tw = leaf(ctx, w, {6, 3, 2, 2}, dtype),
                 tb = leaf(ctx, bias, {6}, DType::fp32);
    const Tensor y = conv2d(ctx, tx, tw, tb,
                            {.stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}, .groups = 2});
    CHECK(y.shape() == Shape{2, o.p(), o.q(), 6});
    CHECK(worst_ratio(y.to_vector(), oracle::conv2d(o, x, w, bias),
                      oracle::conv2d(o, absolute(x), absolute(w), absolute(bias)), 14, acc,
                      dtype) <= 1);
    backward(ctx, y, dy);
    CHECK(worst_ratio(grad(tx), oracle::conv2d_dgrad(o, w, dy),
                      oracle::conv2d_dgrad(o, absolute(w), absolute(dy)), 19, acc,
                      grad_dtype(tx)) <= 1);
    CHECK(worst_ratio(grad(tw), oracle::conv2d_wgrad(o, x, dy),
                      oracle::conv2d_wgrad(o, absolute(x), absolute(dy)), o.n * o.p() * o.q() + 1,
                      acc, grad_dtype(tw)) <= 1);
    CHECK(worst_ratio(grad(tb), oracle::conv2d_bias_grad(o, dy),
                      oracle::conv2d_bias_grad(o, absolute(dy)), o.n * o.p() * o.q() + 1, acc,
                      DType::fp32) <= 1);
  }
}

TEST_CASE("pooling: gradients go to the winner, or are shared out") {
  for (const DType dtype : kFloating) {
    Context ctx;
    const Tensor x = leaf(ctx, {1, 5, 2, 4, 3, 6, 8, 7}, {1, 2, 4, 1}, dtype);
    const Tensor best = max_pool2d(ctx, x);
    CHECK(best.to_vector() == Values{6, 8});
    CHECK(best.dtype() == dtype);
    backward(ctx, best, {1, 2});
    CHECK(grad(x) == Values{0, 0, 0, 0, 0, 1, 2, 0});

    ctx.tape.clear();
    x.leaf()->zero_grad();
    const Tensor mean = avg_pool2d(ctx, x);
    CHECK(mean.to_vector() == Values{3.75, 5.25});
    backward(ctx, mean, {1, 2});
    CHECK(grad(x) == Values{0.25, 0.25, 0.5, 0.5, 0.25, 0.25, 0.5, 0.5});
    CHECK(max_pool2d(ctx, x.detached()).to_vector() == Values{6, 8});
  }
}

TEST_CASE("products and pooling refuse what does not fit, and record nothing") {
  Context ctx;
  const auto tensor = [&](const Shape& shape, DType dtype = DType::fp32) {
    return leaf(ctx, ones(shape.numel()), shape, dtype);
  };
  const Tensor m = tensor({2, 3}), labels = Tensor::zeros(ctx.allocator, {2, 3}, DType::i64);
  CHECK_THROWS_WITH_AS(matmul(ctx, m, m),
                       "[matmul] a of shape [2, 3] and b of shape [2, 3]: inner extents differ",
                       Error);
  CHECK(matmul(ctx, m, m, {.trans_b = true}).shape() == Shape{2, 2});
  ctx.tape.clear();
  CHECK_THROWS_AS(matmul(ctx, m, tensor({3})), Error);
  CHECK_THROWS_AS(matmul(ctx, labels, m), Error);
  CHECK_THROWS_AS(matmul(ctx, tensor({2, 2, 3}), tensor({3, 3, 2})), Error);
  CHECK_THROWS_AS(matmul(ctx, m, m, {.trans_b = true}, tensor({3})), Error);
  CHECK_THROWS_AS(matmul(ctx, Tensor(), m), Error);
  CHECK_THROWS_AS(linear(ctx, m, tensor({4, 2})), Error);
  CHECK_THROWS_AS(linear(ctx, m, tensor({4, 3}), tensor({3})), Error);
  CHECK_THROWS_AS(linear(ctx, m, tensor({3})), Error);
  const Tensor image = tensor({1, 4, 4, 2});
  CHECK_THROWS_WITH_AS(conv2d(ctx, image, tensor({2, 3, 3, 3})),
                       "[conv2d] input channels 2 in 1 groups, weight expects 3 a group", Error);
  CHECK_THROWS_AS(conv2d(ctx, image, tensor({2, 5, 3, 2})), Error);
  CHECK_THROWS_AS(conv2d(ctx, image, tensor({2, 3, 3, 2}), tensor({3})), Error);
  CHECK_THROWS_AS(conv2d(ctx, image, Tensor()), Error);
  CHECK_THROWS_AS(max_pool2d(ctx, image, {.kernel = {5, 1}}), Error);
  CHECK_THROWS_AS(avg_pool2d(ctx, labels), Error);
  CHECK(ctx.tape.empty());
}

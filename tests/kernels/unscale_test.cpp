#include "kernels/step/unscale.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/base/convert.h"
#include "kernels/step/optimizer.h"

using namespace roundoff;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

template <class T>
ConstView view(const std::vector<T>& v) {
  return {v.data(), dtype_of<T>, Shape{static_cast<std::int64_t>(v.size())}};
}
template <class T>
View view(std::vector<T>& v) {
  return {v.data(), dtype_of<T>, Shape{static_cast<std::int64_t>(v.size())}};
}

template <class T>
std::vector<T> narrowed(const std::vector<float>& v) {
  std::vector<T> to(v.size());
  narrow(v.data(), static_cast<std::int64_t>(v.size()), view(to), 0);
  return to;
}

StepStatus with_scale(float scale) {
  StepStatus status;
  set_scale(status, scale);
  return status;
}

// Unscales and clips as separate passes; returns the fp32 gradients.
struct Unfused {
  std::vector<std::vector<float>> gradients;
  bool found_inf = false;
  double norm = 0.0;
};
Unfused unfused(const std::vector<ConstView>& gradients, const StepStatus& status,
                double max_norm) {
  Unfused r;
  std::vector<ConstView> views;
  for (const ConstView& g : gradients) {
    r.gradients.emplace_back(static_cast<std::size_t>(g.present ? g.numel() : 0));
    if (!g.present) {
      views.push_back(ConstView::absent());
      continue;
    }
    unscale(Ref{}, status.inv_scale, g, view(r.gradients.back()));
    views.push_back(view(r.gradients.back()));
    r.found_inf = r.found_inf || !all_finite(Ref{}, views.back());
  }
  r.norm = global_norm(Ref{}, views);
  if (!r.found_inf)
    for (auto& g : r.gradients) scale_gradient(Ref{}, clip_coefficient(r.norm, max_norm), view(g));
  return r;
}

// The gradient that the fused optimizer pass sees: after one step from zero, momentum's buffer.
std::vector<float> applied(const ConstView& gradient, const StepStatus& status) {
  const auto n = static_cast<std::size_t>(gradient.numel());
  std::vector<float> w(n, 0.0F), buffer(n, 0.0F);
  std::int64_t steps = 0;
  OptimizerChunk chunk;
  chunk.parameter = view(w);
  chunk.gradient = gradient;
  chunk.first_moment = buffer.data();
  chunk.steps = &steps;
  sgd_step(Ref{}, {.lr = 1.0, .momentum = 0.5}, status, {&chunk, 1});
  return buffer;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  return true;
}

std::vector<float> random_values(std::size_t n, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(engine);
  return v;
}

}  // namespace

TEST_CASE_TEMPLATE("case 92 [CLIP] inf check sees every element of every tensor", T, float, Half,
                   BFloat16) {
  for (const float bad : {kInf, -kInf, kNaN}) {
    for (const bool last : {true, false}) {
      std::vector<T> a(1, T(1.0F)), b, d(1000003, T(0.001F)), e(257, T(0.5F));
      if (last)
        e.back() = T(bad);
      else
        a.front() = T(bad);
      const std::vector<ConstView> gradients{view(a), view(b), ConstView::absent(), view(d),
                                             view(e)};
      StepStatus status = with_scale(1024.0F);
      inspect_gradients(Ref{}, {}, gradients, status);
      CHECK(status.found_inf == 1);
      CHECK(status.first_offender == (last ? 4 : 0));
      CHECK(status.present == 4);
      CHECK(!std::isfinite(status.norm));
      // All tensors are treated alike, the offender or not: nothing moves.
      for (const ConstView& g : gradients) {
        if (!g.present) continue;
        const auto n = static_cast<std::size_t>(g.numel());
        std::vector<float> w(n, 3.0F), m(n, 0.25F), v(n, 0.5F);
        std::int64_t steps = 7;
        OptimizerChunk chunk;
        chunk.parameter = view(w);
        chunk.gradient = g;
        chunk.first_moment = m.data();
        chunk.second_moment = v.data();
        chunk.steps = &steps;
        adam_step(Ref{}, {.weight_decay = 0.1}, status, {&chunk, 1});
        CHECK(w == std::vector<float>(n, 3.0F));
        CHECK(m == std::vector<float>(n, 0.25F));
        CHECK(v == std::vector<float>(n, 0.5F));
        CHECK(steps == 7);
      }
    }
  }
}

TEST_CASE("the check sees a bad element at every place of every tail") {
  for (std::size_t n = 1; n <= 70; ++n) {
    for (std::size_t at = 0; at < n; ++at) {
      std::vector<float> g(n, 1.0F);
      g[at] = kNaN;
      const ConstView views[] = {view(g)};
      StepStatus status;
      inspect_gradients(Ref{}, {}, views, status);
      REQUIRE(status.found_inf == 1);
    }
  }
}

TEST_CASE("the check is per element after unscaling too, and knows the offender") {
  // 3e38 / 0.5 leaves fp32; the scaled value itself was finite.
  const std::vector<float> fine{1.0F}, big{1.0F, 3e38F};
  const ConstView views[] = {view(fine), view(big), view(fine)};
  StepStatus status = with_scale(0.5F);
  inspect_gradients(Ref{}, {}, views, status);
  CHECK(status.found_inf == 1);
  CHECK(status.first_offender == 1);
  // Two largest finite values: the norm leaves fp32, the gradients are still fine.
  const std::vector<float> edge{std::numeric_limits<float>::max(),
                                std::numeric_limits<float>::max()};
  const ConstView edges[] = {view(edge)};
  StepStatus ok;
  inspect_gradients(Ref{}, {.max_norm = 1e38}, edges, ok);
  CHECK(ok.found_inf == 0);
  CHECK(std::isfinite(ok.norm));
  CHECK(ok.clip > 0.0F);
}

TEST_CASE("case 95 [CLIP] stale flag") {
  const std::vector<float> bad{kInf}, good{2.0F};
  const ConstView first[] = {view(bad)};
  const ConstView second[] = {view(good)};
  StepStatus status;
  inspect_gradients(Ref{}, {}, first, status);
  REQUIRE(status.found_inf == 1);
  inspect_gradients(Ref{}, {}, second, status);
  CHECK(status.found_inf == 0);
  CHECK(status.first_offender == -1);
  CHECK(applied(view(good), status) == std::vector<float>{2.0F});
}

TEST_CASE("case 96 [CLIP] unscale goes to fp32, not in fp16") {
  const std::vector<Half> g{Half(0x1p-14F)};
  const StepStatus status = with_scale(65536.0F);
  std::vector<float> to(1);
  unscale(Ref{}, status.inv_scale, view(g), view(to));
  CHECK(to[0] == 0x1p-30F);
  CHECK(applied(view(g), status)[0] == 0x1p-30F);
  std::vector<Half> half(1);
  CHECK_THROWS_AS(unscale(Ref{}, status.inv_scale, view(g), view(half)), Error);
}

TEST_CASE("case 98 [CLIP] no epsilon in the coefficient") {
  struct Row {
    std::vector<float> gradient;
    double max_norm;
    std::vector<double> want;
    bool bits_stay;
  };
  const Row rows[] = {
      {{3.0F, 4.0F}, 1.0, {0.6, 0.8}, false},
      {{0.6F, 0.8F}, 1.0, {0.6, 0.8}, true},
      {{1.0F, 0.0F}, 1.0, {1.0, 0.0}, true},
      {{3e-7F, 4e-7F}, 1e-7, {0.6e-7, 0.8e-7}, false},
  };
  for (const Row& row : rows) {
    StepStatus status;
    const ConstView views[] = {view(row.gradient)};
    inspect_gradients(Ref{}, {.max_norm = row.max_norm}, views, status);
    const std::vector<float> got = applied(view(row.gradient), status);
    for (std::size_t i = 0; i < got.size(); ++i)
      CHECK(std::abs(static_cast<double>(got[i]) - row.want[i]) <= 1e-6 * std::abs(row.want[i]));
    if (row.bits_stay) CHECK(same_bits(got, row.gradient));
    CHECK(same_bits(got, unfused({views[0]}, StepStatus{}, row.max_norm).gradients[0]));
  }
}

TEST_CASE("case 99 [CLIP] norm overflow when squaring") {
  // 100 values of 1e20: norm 1e21, each clipped to 0.1.
  const std::vector<float> big(100, 1e20F);
  const ConstView views[] = {view(big)};
  StepStatus status;
  inspect_gradients(Ref{}, {.max_norm = 1.0}, views, status);
  CHECK(status.found_inf == 0);
  CHECK(status.norm == doctest::Approx(1e21).epsilon(1e-6));
  for (const float x : applied(view(big), status)) CHECK(x == doctest::Approx(0.1).epsilon(1e-6));

  const std::vector<Half> half{Half(300.0F)};
  const ConstView halves[] = {view(half)};
  status = {};
  inspect_gradients(Ref{}, {.max_norm = 1.0}, halves, status);
  CHECK(status.norm == 300.0);
  // 300 times fp32(1/300): one rounding each.
  CHECK(std::abs(applied(view(half), status)[0] - 1.0F) <= 0x1p-23F);

  const std::vector<float> scaled{3e15F * 65536.0F, 4e15F * 65536.0F};
  const ConstView fused[] = {view(scaled)};
  status = with_scale(65536.0F);
  inspect_gradients(Ref{}, {}, fused, status);
  CHECK(status.found_inf == 0);
  CHECK(status.norm == doctest::Approx(5e15).epsilon(1e-6));
}

TEST_CASE("squares that would underflow count") {
  const std::vector<float> tiny(4, 0x1p-149F);
  const ConstView views[] = {view(tiny)};
  StepStatus status;
  inspect_gradients(Ref{}, {}, views, status);
  CHECK(status.norm == 0x1p-148);
}

TEST_CASE("case 101 [CLIP] non-finite gradients meet clipping") {
  const std::vector<float> g{1.0F, kInf, 2.0F};
  const ConstView views[] = {view(g)};
  StepStatus status;
  inspect_gradients(Ref{}, {.max_norm = 1.0}, views, status);
  CHECK(status.norm == static_cast<double>(kInf));
  CHECK(status.found_inf == 1);
  CHECK(status.clip == 1.0F);
  CHECK(applied(view(g), status) == std::vector<float>{0.0F, 0.0F, 0.0F});
  CHECK(same_bits(unfused({views[0]}, StepStatus{}, 1.0).gradients[0], g));
}

TEST_CASE("case 102 [CLIP] max_norm validation") {
  const std::vector<float> g{3.0F, 4.0F}, zero{0.0F, 0.0F};
  const ConstView views[] = {view(g)};
  const ConstView zeros[] = {view(zero)};
  StepStatus status;
  CHECK_THROWS_AS(inspect_gradients(Ref{}, {.max_norm = -1.0}, views, status), UsageError);
  CHECK_THROWS_AS(inspect_gradients(Ref{}, {.max_norm = static_cast<double>(kNaN)}, views, status),
                  UsageError);
  CHECK(status.norm == 0.0);  // untouched by the errors
  inspect_gradients(Ref{}, {.max_norm = 0.0}, views, status);
  CHECK(applied(view(g), status) == std::vector<float>{0.0F, 0.0F});
  inspect_gradients(Ref{}, {.max_norm = static_cast<double>(kInf)}, views, status);
  CHECK(same_bits(applied(view(g), status), g));
  for (const double max_norm : {0.0, 1.0}) {
    inspect_gradients(Ref{}, {.max_norm = max_norm}, zeros, status);
    CHECK(status.norm == 0.0);
    CHECK(same_bits(applied(view(zero), status), std::vector<float>{0.0F, 0.0F}));
  }
  inspect_gradients(Ref{}, {.max_norm = 1.0}, {}, status);
  CHECK(status.norm == 0.0);
  CHECK(status.clip == 1.0F);
  CHECK(status.present == 0);
}

TEST_CASE("case 103 [CLIP] clip after unscale") {
  const std::vector<float> scaled{3.0F * 1024.0F, 4.0F * 1024.0F};
  const ConstView views[] = {view(scaled)};
  StepStatus status = with_scale(1024.0F);
  inspect_gradients(Ref{}, {.max_norm = 1.0}, views, status);
  CHECK(status.norm == 5.0);
  const std::vector<float> got = applied(view(scaled), status);
  CHECK(got[0] == 3.0F * 0.2F);
  CHECK(got[1] == 4.0F * 0.2F);
  CHECK(std::abs(static_cast<double>(got[0]) - 0.6) <= 0.6 * 1e-6);
  CHECK(std::abs(static_cast<double>(got[1]) - 0.8) <= 0.8 * 1e-6);
}

TEST_CASE_TEMPLATE("fused equals unfused bit for bit, for any scale and dtype", T, float, Half,
                   BFloat16) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{17},
                              std::size_t{1023}, std::size_t{1024}, std::size_t{5003}}) {
    const auto a = narrowed<T>(random_values(n, 1));
    const auto b = narrowed<T>(random_values(3, 2));
    const std::vector<ConstView> gradients{view(a), ConstView::absent(), view(b)};
    for (const float scale : {1.0F, 1024.0F, 0.25F, 1000.0F}) {
      for (const double max_norm : {0.5 / static_cast<double>(scale), 1e9}) {
        StepStatus status = with_scale(scale);
        inspect_gradients(Ref{}, {.max_norm = max_norm}, gradients, status);
        const Unfused parts = unfused(gradients, status, max_norm);
        CHECK(parts.norm == status.norm);
        CHECK(same_bits(applied(gradients[0], status), parts.gradients[0]));
        CHECK(same_bits(applied(gradients[2], status), parts.gradients[2]));
      }
    }
  }
}

TEST_CASE("a power-of-two scale is bit-neutral for norm, clip and what is applied") {
  const std::vector<float> g = random_values(777, 3);
  const ConstView plain[] = {view(g)};
  StepStatus one;
  inspect_gradients(Ref{}, {.max_norm = 2.0}, plain, one);
  for (const float scale : {0x1p8F, 0x1p16F, 0x1p-3F, 0x1p40F}) {
    std::vector<float> scaled = g;
    for (float& x : scaled) x *= scale;
    const ConstView views[] = {view(scaled)};
    StepStatus status = with_scale(scale);
    inspect_gradients(Ref{}, {.max_norm = 2.0}, views, status);
    CHECK(status.norm == one.norm);
    CHECK(status.clip == one.clip);
    CHECK(same_bits(applied(view(scaled), status), applied(view(g), one)));
  }
}

TEST_CASE("norm against a sequential long double sum within its bound") {
  const std::vector<float> a = random_values(100003, 4), b = random_values(31, 5);
  const ConstView views[] = {view(a), view(b)};
  StepStatus status;
  inspect_gradients(Ref{}, {}, views, status);
  long double sum = 0.0L;
  for (const auto* v : {&a, &b})
    for (const float x : *v) sum += static_cast<long double>(x) * static_cast<long double>(x);
  const auto want = static_cast<double>(std::sqrt(sum));
  const double h = 100003.0 / 16.0 + 4.0 + 2.0 + 2.0;
  // The reference itself: 100034 additions of relative error 2^-64, halved by the square root.
  CHECK(std::abs(status.norm - want) <= (h * 0x1p-54 + 100034.0 * 0x1p-65 + 0x1p-53) * want);
}

TEST_CASE("bad input is refused before the status changes") {
  StepStatus status = with_scale(2.0F);
  status.norm = 42.0;
  const std::vector<double> wide{1.0};
  const ConstView views[] = {view(wide)};
  CHECK_THROWS_AS(inspect_gradients(Ref{}, {}, views, status), Error);
  status.inv_scale = 0.0F;
  CHECK_THROWS_AS(inspect_gradients(Ref{}, {}, {}, status), Error);
  CHECK(status.norm == 42.0);
  const std::vector<float> g(3);
  std::vector<float> short_one(2);
  CHECK_THROWS_AS(unscale(Ref{}, 1.0F, view(g), view(short_one)), Error);
}

TEST_CASE("a window's divisor folds into the inverse scale") {
  StepStatus status;
  set_scale(status, 1024.0F, 3.0);
  StepStatus unit;
  set_scale(unit, 1.0F, 3.0);
  CHECK(status.inv_scale * 1024.0F == unit.inv_scale);
}

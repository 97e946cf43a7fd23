#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "verify/oracle/step.h"

using namespace roundoff;
using doctest::Approx;
using oracle::Values;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

oracle::UnscaleClip clip(const Values& g, double max_norm, double scale = 1) {
  const Values grads[] = {g};
  return oracle::unscale_clip({.scale = scale, .max_norm = max_norm}, grads);
}

}  // namespace

TEST_CASE("case 96 [CLIP] unscale goes to fp32, on the oracle") {
  CHECK(clip({0x1p-14}, kInf, 65536).grads[0] == Values{0x1p-30});
}

TEST_CASE("case 98 [CLIP] no eps in the coefficient, on the oracle") {
  CHECK(clip({3, 4}, 1).grads[0][0] == Approx(0.6).epsilon(1e-15));
  CHECK(clip({0.6, 0.8}, 1.0000001).grads[0] == Values{0.6, 0.8});
  CHECK(clip({1, 0}, 1).grads[0] == Values{1, 0});
  CHECK(clip({3e-7, 4e-7}, 1e-7).grads[0][1] == Approx(0.8e-7).epsilon(1e-15));
}

TEST_CASE("case 99 [CLIP] norm overflow when squaring, on the oracle") {
  auto out = clip(Values(100, 1e20), 1);
  CHECK(out.norm == Approx(1e21).epsilon(1e-15));
  CHECK(out.grads[0][0] == Approx(0.1).epsilon(1e-15));
  CHECK_FALSE(out.found_inf);
  out = clip({3e15 * 65536, 4e15 * 65536}, kInf, 65536);
  CHECK(out.norm == 5e15);
  CHECK_FALSE(out.found_inf);
}

TEST_CASE("case 101 [CLIP] non-finite gradients meet clipping, on the oracle") {
  const auto out = clip({1, kInf, 2}, 1);
  CHECK(out.norm == kInf);
  CHECK(out.found_inf);
  CHECK(out.clip == 1);
  CHECK(out.grads[0] == Values{1, kInf, 2});
  CHECK(clip({kNaN}, 1).found_inf);
  // Finite before unscaling, infinite in fp32 after it.
  CHECK(clip({0x1p100}, kInf, 0x1p-28).found_inf);
  CHECK_FALSE(clip({0x1p100}, kInf, 0x1p-27).found_inf);
}

TEST_CASE("case 102 [CLIP] max_norm validation, on the oracle") {
  CHECK_THROWS_AS(clip({1}, -1), Error);
  CHECK_THROWS_AS(clip({1}, kNaN), Error);
  CHECK(clip({3, 4}, 0).grads[0] == Values{0, 0});
  CHECK(clip({3, 4}, kInf).grads[0] == Values{3, 4});
  CHECK(clip({0, 0}, 0).grads[0] == Values{0, 0});
  CHECK(oracle::unscale_clip({.max_norm = 1}, {}).norm == 0);
}

TEST_CASE("case 103 [CLIP] clip after unscale, on the oracle") {
  const auto out = clip({3 * 1024, 4 * 1024}, 1, 1024);
  CHECK(out.grads[0][0] == Approx(0.6).epsilon(1e-15));
  CHECK(out.grads[0][1] == Approx(0.8).epsilon(1e-15));
}

TEST_CASE("case 113 [OPT] Adam eps, on the oracle") {
  Values w{1}, m{0}, v{0};
  oracle::adam_step({}, 1, Values{0}, w, m, v);
  CHECK(w == Values{1});
}

TEST_CASE("case 114 [OPT] the masters' sum, on the oracle") {
  Values w{1}, buffer;
  for (int i = 0; i < 100; ++i) oracle::sgd_step({.lr = 6e-4}, Values{1}, w, buffer);
  CHECK(w[0] == Approx(0.94).epsilon(1e-14));
}

TEST_CASE("case 116 [OPT] Adam's first step, on the oracle") {
  Values w{1}, m{0}, v{0};
  oracle::adam_step({.lr = 0.01}, 1, Values{0.5}, w, m, v);
  CHECK(std::abs(w[0] - 0.9900000002) < 0.5e-10);
  w = {1}, m = {0}, v = {0};  // what counting a skipped step would give
  oracle::adam_step({.lr = 0.01}, 2, Values{0.5}, w, m, v);
  CHECK(std::abs(w[0] - 0.9925586) < 0.5e-7);
}

TEST_CASE("optimizer oracles: momentum, Nesterov and both kinds of decay by hand") {
  const oracle::SgdParams plain{.lr = 0.5, .momentum = 0.5, .weight_decay = 0.25};
  Values w{4}, buffer{2};
  oracle::sgd_step(plain, Values{1}, w, buffer);  // g = 1 + 1 = 2, buffer = 1 + 2 = 3
  CHECK(buffer == Values{3});
  CHECK(w == Values{2.5});
  oracle::SgdParams nesterov = plain;
  nesterov.nesterov = true;
  w = {4}, buffer = {2};
  oracle::sgd_step(nesterov, Values{1}, w, buffer);  // g + 0.5 * 3 = 3.5
  CHECK(w == Values{2.25});

  // beta1 = beta2 = 0.5, step 1: m / bias = g, sqrt(v / bias) = |g|.
  oracle::AdamParams adam{.lr = 0.5, .beta1 = 0.5, .beta2 = 0.5, .eps = 0, .weight_decay = 0.25};
  Values m{0}, v{0};
  w = {4};
  oracle::adam_step(adam, 1, Values{1}, w, m, v);
  CHECK(m == Values{1});
  CHECK(v == Values{2});
  CHECK(w == Values{3.5});
  adam.decoupled_decay = true;
  w = {4}, m = {0}, v = {0};
  oracle::adam_step(adam, 1, Values{1}, w, m, v);
  CHECK(m == Values{0.5});
  CHECK(w == Values{3});  // 4 - 0.5 * 0.25 * 4 - 0.5
}

// The study of accumulation: its claims, what single cells must hold, and the bound that it judges
// by.
#include <cmath>

#include "study/experiment.h"
#include "study/list.h"
#include "study/mlp_bound.h"
#include "study_run.h"

using namespace roundoff;
using namespace roundoff::study;
using namespace roundoff::test;

TEST_CASE(
    "the bound of tiny-mlp's gradient: its value is the fp64 gradient, and fp32 keeps to it") {
  const Dataset data = make_glyphs(
      2, {.train_scenes = 4, .validation_scenes = 1, .test_scenes = 1, .images_per_scene = 5});
  Experiment low({.model = {.model = "tiny-mlp"}, .seed = 5}, data);
  Experiment high({.model = {.model = "tiny-mlp"}, .fp64 = true, .seed = 5}, data);
  const std::vector<std::int64_t> indices = first_samples(20);
  const auto window = low.window(indices, 20);
  const std::vector<double> x = window[0].x.to_vector();
  std::vector<std::int64_t> labels(20);
  window[0].host_labels.read(labels.data());
  const MlpShape shape{576, 16, 3};
  CHECK(shape.parameters() == 9283);
  const BoundedGradient g = bounded_gradient(shape, low.weights(), x, labels, 20);
  const std::vector<double> exact = high.gradient(high.window(indices, 20));
  const std::vector<double> rounded = low.gradient(window);
  std::int64_t positive = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    // fp64 rounds 2^29 times finer than the bound assumes.
    REQUIRE(std::abs(g.value[i] - exact[i]) <= 2 * 0x1p-29 * g.bound[i]);
    REQUIRE(std::abs(rounded[i] - exact[i]) <= (1 + 0x1p-29) * g.bound[i]);
    positive += g.bound[i] > 0;
  }
  CHECK(positive > 9000);
  // It can fail: one sample that is left out is far outside.
  const std::vector<double> other = low.gradient(low.window(first_samples(19), 19));
  std::int64_t outside = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    outside += std::abs(other[i] - exact[i]) > g.bound[i];
  CHECK(outside > 1000);
  CHECK_THROWS_AS(bounded_gradient({575, 16, 3}, low.weights(), x, labels, 1), Error);
}

TEST_CASE("samples without a target do not count in the bounded gradient") {
  const std::vector<double> weights{0.5, -0.25, 0.125, 1, -1, 0.5, 0.25};  // 1-1-2
  const MlpShape shape{1, 1, 2};
  REQUIRE(shape.parameters() == 6);
  const std::span<const double> w = std::span(weights).first(6);
  const std::vector<double> x{2, 3, -1};
  const std::vector<std::int64_t> with{0, -100, 1};
  const std::vector<double> fewer{2, -1};
  const std::vector<std::int64_t> without{0, 1};
  const BoundedGradient a = bounded_gradient(shape, w, x, with, 1);
  const BoundedGradient b = bounded_gradient(shape, w, fewer, without, 1);
  CHECK(a.value == b.value);
}

TEST_SUITE("full") {
  TEST_CASE("study accumulation: its claims hold") {
    const Result result = run_quick(run_accumulation);
    REQUIRE(result.tables.size() == 7);
    const Table& cuts = result.tables[0];
    REQUIRE(cuts.rows().size() == 10);
    // Three of four micro-batches, divided by four: a quarter is missing.
    CHECK(number_at(cuts, 8, "relative difference") == doctest::Approx(0.25));
    for (const std::size_t right : {0U, 1U, 2U, 3U, 4U, 9U})
      CHECK(number_at(cuts, right, "largest difference over its bound") <= 1);
    const Table& loop = result.tables[4];
    CHECK(number_at(loop, 0, "distance, last window") == 0);
    CHECK(number_at(loop, 2, "updates") == 4 * number_at(loop, 1, "updates"));
  }
}

// What studies train with: windows, gradients, the largest scale, and words about vectors.
#include "study/experiment.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace roundoff;
using namespace roundoff::study;

namespace {

Dataset small_glyphs() {
  return make_glyphs(
      1, {.train_scenes = 4, .validation_scenes = 1, .test_scenes = 1, .images_per_scene = 5});
}

}  // namespace

TEST_CASE("vectors: norms, differences, cosines and counts") {
  const std::vector<double> a{3, 0, 4};
  const std::vector<double> b{3, 4, 0};
  CHECK(norm(a) == 5);
  CHECK(cosine(a, b) == doctest::Approx(9.0 / 25));
  CHECK(relative_difference(a, b) == std::sqrt(32.0) / 5);
  CHECK(flushed(a, b) == 1);
  CHECK(flushed(b, b) == 0);
  CHECK(nonzeros(a) == 2);
  CHECK(std::isnan(cosine(a, std::vector<double>(3))));
}

TEST_CASE("numbers as text") {
  CHECK(power_of_two(65536) == "2^16");
  CHECK(power_of_two(0x1p-20) == "2^-20");
  CHECK(power_of_two(3) == "3");
  CHECK(power_of_two(0) == "0");
  CHECK(power_of_two(-4) == "-4");
  CHECK(power_of_two(HUGE_VAL) == "inf");
  CHECK(digits(1.0 / 3, 3) == "0.333");
}

TEST_CASE("seeds: one's own, or those that were asked for") {
  CHECK(study_seeds({}, 3) == std::vector<std::uint64_t>{1, 2, 3});
  CHECK(study_seeds({.seeds = {7, 9}}, 3) == std::vector<std::uint64_t>{7, 9});
}

TEST_CASE("an experiment: windows keep the order, gradients leave everything as it was") {
  const Dataset data = small_glyphs();
  Experiment e({.model = {.model = "tiny-mlp"}}, data);
  const std::vector<std::int64_t> indices{5, 3, 8, 1, 0, 7};
  const std::vector<std::int64_t> sizes{1, 3, 2};
  const auto window = e.window(indices, sizes, 10);
  REQUIRE(window.size() == 3);
  std::size_t at = 0;
  for (std::size_t m = 0; m < 3; ++m) {
    CHECK(window[m].labels.numel() == sizes[m]);
    CHECK(window[m].sample0 == 10 + at);
    for (std::int64_t i = 0; i < sizes[m]; ++i)
      CHECK(window[m].labels.at(i) ==
            static_cast<double>(data.train.labels[static_cast<std::size_t>(indices[at++])]));
  }
  CHECK_THROWS_AS(e.window(indices, std::vector<std::int64_t>{2, 3}), Error);
  CHECK(e.window(indices, 4).back().labels.numel() == 2);

  const std::vector<double> weights = e.weights();
  const std::vector<double> g = e.gradient(window);
  CHECK(g.size() == 9283);
  CHECK(e.gradient(window) == g);
  // fp32 gradients scaled by a power of two, and divided by it again, are the same numbers.
  CHECK(e.gradient(window, 1024) == g);
  CHECK(e.weights() == weights);
  CHECK(norm(g) > 0);
}

TEST_CASE("the largest scale is the last power of two before an infinity") {
  const Dataset data = small_glyphs();
  Experiment e({.model = {.model = "tiny-mlp"}, .precision = Precision::fp16}, data);
  const auto window = e.window(first_samples(8), 8);
  const double from_below = e.largest_scale(window, 1);
  CHECK(from_below == e.largest_scale(window, 0x1p60));
  const auto finite = [&](double scale) {
    const std::vector<double> g = e.gradient(window, scale);
    return std::all_of(g.begin(), g.end(), [](double v) { return std::isfinite(v); });
  };
  CHECK(finite(from_below));
  CHECK_FALSE(finite(2 * from_below));
}

TEST_CASE("an experiment in fp64 starts at the same weights, to fp32's rounding") {
  const Dataset data = small_glyphs();
  Experiment low({.model = {.model = "tiny-mlp"}}, data);
  Experiment high({.model = {.model = "tiny-mlp"}, .fp64 = true}, data);
  CHECK(high.weights() == low.weights());
  const std::vector<std::int64_t> indices = first_samples(6);
  const std::vector<double> a = low.gradient(low.window(indices, 6));
  const std::vector<double> b = high.gradient(high.window(indices, 6));
  CHECK(relative_difference(a, b) > 0);
  CHECK(cosine(a, b) == doctest::Approx(1));
}

TEST_CASE("seeds: a study's own, a person's, none twice") {
  Options options;
  CHECK(study_seeds(options, 3) == std::vector<std::uint64_t>{1, 2, 3});
  CHECK(first_seed(options) == 1);
  options.seeds = {7, 9};
  CHECK(study_seeds(options, 3) == std::vector<std::uint64_t>{7, 9});
  Result result;
  set_one_seed(options, result);
  CHECK(result.seeds == std::vector<std::uint64_t>{7});
  REQUIRE(result.skipped.size() == 1);
  CHECK(result.skipped[0] == "every seed but 7: this study takes one");
  options.seeds = {7, 9, 7};
  CHECK_THROWS_WITH_AS(study_seeds(options, 3), doctest::Contains("--seeds has 7 twice"),
                       UsageError);
}

TEST_CASE("of named data a quick study takes the first images") {
  study::Options options{.quick = true, .data = "glyphs"};
  const Dataset some = study_data(options, {});
  options.quick = false;
  const Dataset all = study_data(options, {});
  REQUIRE(all.train.size() > 2000);
  CHECK(some.train.size() == 2000);
  CHECK(some.train.images.shape[0] == 2000);
  CHECK(some.train.labels[1999] == all.train.labels[1999]);
  CHECK(std::equal(some.train.images.bytes.begin(), some.train.images.bytes.end(),
                   all.train.images.bytes.begin()));
  CHECK(some.test.size() == std::min<std::int64_t>(1000, all.test.size()));
  CHECK(some.name == all.name + ", the first 2000 training images");
}

TEST_CASE("a study says how many samples it needs") {
  const Dataset data = make_glyphs(
      1, {.train_scenes = 2, .validation_scenes = 1, .test_scenes = 1, .images_per_scene = 4});
  need_samples("x", data, 8);
  CHECK_THROWS_WITH_AS(need_samples("x", data, 9),
                       doctest::Contains("has 8 training samples; the study needs 9"), Error);
}

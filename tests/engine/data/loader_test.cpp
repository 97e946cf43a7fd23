#include "engine/data/loader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/data/random.h"
#include "tests/engine/io/allocation_count.h"

using namespace roundoff;

namespace {

std::vector<std::int64_t> take(Sampler& sampler, std::int64_t batches) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < batches; ++i) {
    const auto batch = sampler.next();
    all.insert(all.end(), batch.indices.begin(), batch.indices.end());
  }
  return all;
}

Split small_split(ElementType type, std::int64_t n, std::int64_t channels) {
  Split split;
  split.images = HostArray(type, {n, 2, 3, channels});
  for (std::int64_t i = 0; i < split.images.numel(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (type == ElementType::u8)
      split.images.as<std::uint8_t>()[at] = static_cast<std::uint8_t>(i * 37 % 256);
    else
      split.images.as<float>()[at] = static_cast<float>(i) / 7;
  }
  for (std::int64_t i = 0; i < n; ++i) split.labels.push_back(i % 3);
  return split;
}

}  // namespace

TEST_CASE("a stream gives the words of its place in Philox, in order") {
  RandomStream stream(0x123456789ABCDEF0, RandomUse::glyphs, 17, 5);
  const PhiloxStream place = philox_stream(0x123456789ABCDEF0, 17, 0xDA7A0002);
  for (std::uint64_t i = 0; i < 11; ++i) CHECK(stream.bits() == place.bits(5, i));
}

TEST_CASE("bounded draws are uniform: a chi-squared test over 10 values") {
  RandomStream random(7, RandomUse::shuffle, 0);
  std::vector<double> counts(10);
  const int draws = 100000;
  for (int i = 0; i < draws; ++i) counts[random.below(10)] += 1;
  double chi = 0;
  for (const double n : counts) chi += (n - draws / 10.0) * (n - draws / 10.0) / (draws / 10.0);
  CHECK(chi < 27.88);  // 99.9% of the distribution with 9 degrees of freedom
  CHECK(random.below(1) == 0);
}

TEST_CASE("an epoch's order is a permutation, a pure function of seed and epoch") {
  for (const std::size_t n : {std::size_t{1}, std::size_t{2}, std::size_t{1000}}) {
    std::vector<std::int64_t> order(n);
    epoch_order(5, 3, order);
    auto sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < n; ++i) REQUIRE(sorted[i] == static_cast<std::int64_t>(i));
  }
  std::vector<std::int64_t> a(1000), b(1000), c(1000), d(1000);
  epoch_order(5, 3, a);
  epoch_order(5, 3, b);
  epoch_order(5, 4, c);
  epoch_order(6, 3, d);
  CHECK(a == b);
  CHECK(a != c);
  CHECK(a != d);
}

TEST_CASE("all 24 orders of four samples come equally often") {
  std::vector<double> counts(256);
  const int epochs = 24000;
  for (int e = 0; e < epochs; ++e) {
    std::array<std::int64_t, 4> order{};
    epoch_order(1, e, order);
    counts[static_cast<std::size_t>(order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3])] += 1;
  }
  double chi = 0;
  int seen = 0;
  for (const double n : counts) {
    if (n == 0) continue;
    ++seen;
    chi += (n - 1000) * (n - 1000) / 1000;
  }
  CHECK(seen == 24);
  CHECK(chi < 49.73);  // 99.9% with 23 degrees of freedom
}

TEST_CASE("the order does not depend on how it is cut into batches") {
  Sampler ones({.seed = 9, .count = 10, .batch = 1});
  Sampler fours({.seed = 9, .count = 10, .batch = 4});
  CHECK(take(ones, 20) == take(fours, 6));
  CHECK(fours.state() == SamplerState{1, 10});
}

TEST_CASE("short last batches are given, or dropped") {
  Sampler all({.seed = 1, .count = 10, .batch = 4});
  CHECK(all.batches_per_epoch() == 3);
  CHECK(all.next().indices.size() == 4);
  const auto middle = all.next();
  CHECK(middle.first == 4);
  CHECK_FALSE(middle.last);
  const auto last = all.next();
  CHECK(last.indices.size() == 2);
  CHECK(last.first == 8);
  CHECK(last.last);
  const auto next = all.next();
  CHECK(next.epoch == 1);
  CHECK(next.first == 0);

  Sampler dropped({.seed = 1, .count = 10, .batch = 4, .drop_last = true});
  CHECK(dropped.batches_per_epoch() == 2);
  dropped.next();
  CHECK(dropped.next().last);
  CHECK(dropped.next().epoch == 1);

  Sampler plain({.count = 5, .batch = 5, .shuffle = false});
  CHECK(take(plain, 1) == std::vector<std::int64_t>{0, 1, 2, 3, 4});
  CHECK(take(plain, 1) == std::vector<std::int64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("a restored sampler goes on as the other would have") {
  const Sampler::Settings settings{.seed = 3, .count = 11, .batch = 3};
  for (int steps = 0; steps <= 9; ++steps) {
    Sampler first(settings);
    take(first, steps);
    Sampler second(settings);
    second.restore(first.state());
    CHECK(second.state() == first.state());
    CHECK(take(second, 7) == take(first, 7));
  }
  Sampler sampler(settings);
  take(sampler, 2);
  const auto before = sampler.state();
  for (const SamplerState bad : {SamplerState{-1, 0}, SamplerState{std::int64_t{1} << 32, 0},
                                 SamplerState{0, -3}, SamplerState{0, 4}, SamplerState{0, 12}}) {
    CHECK_THROWS_AS(sampler.restore(bad), Error);
    CHECK(sampler.state() == before);
  }
  sampler.restore({0, 11});
  CHECK(sampler.next().epoch == 1);
}

TEST_CASE("impossible samplers are refused") {
  CHECK_THROWS_AS(Sampler({.count = 0, .batch = 1}), Error);
  CHECK_THROWS_AS(Sampler({.count = 3, .batch = 0}), Error);
  CHECK_THROWS_AS(Sampler({.count = std::int64_t{1} << 32, .batch = 1}), Error);
  CHECK_THROWS_AS(Sampler({.count = 3, .batch = 4, .drop_last = true}), Error);
  CHECK_NOTHROW(Sampler({.count = 3, .batch = 4}));
}

TEST_CASE("gather normalises pixel by pixel, a channel at a time") {
  for (const ElementType type : {ElementType::u8, ElementType::fp32}) {
    for (const std::int64_t channels : {std::int64_t{1}, std::int64_t{3}}) {
      const Split split = small_split(type, 7, channels);
      Normalization normalization;
      for (std::int64_t c = 0; c < channels; ++c) {
        normalization.mean.push_back(0.25 + static_cast<double>(c));
        normalization.deviation.push_back(0.5 / static_cast<double>(c + 1));
      }
      const BatchReader reader(split, normalization);
      const std::int64_t size = reader.image_size();
      CHECK(size == 6 * channels);
      const std::vector<std::int64_t> indices{6, 0, 3, 3};
      std::vector<float> images(static_cast<std::size_t>(4 * size));
      std::vector<std::int64_t> labels(4);
      reader.gather(indices, images, labels);
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK(labels[i] == indices[i] % 3);
        for (std::int64_t j = 0; j < size; ++j) {
          const auto c = static_cast<std::size_t>(j % channels);
          const auto at = static_cast<std::size_t>(indices[i] * size + j);
          const double raw = type == ElementType::u8
                                 ? split.images.as<std::uint8_t>()[at] / 255.0
                                 : static_cast<double>(split.images.as<float>()[at]);
          const auto want =
              static_cast<float>((raw - normalization.mean[c]) / normalization.deviation[c]);
          CHECK(images[i * static_cast<std::size_t>(size) + static_cast<std::size_t>(j)] == want);
        }
      }
      std::vector<float> short_by_one(images.size() - 1);
      CHECK_THROWS_AS(reader.gather(indices, short_by_one, labels), Error);
      const std::vector<std::int64_t> outside{0, 1, 2, 7};
      CHECK_THROWS_AS(reader.gather(outside, images, labels), Error);
      CHECK_THROWS_AS(BatchReader(split, {{0.0, 0.0}, {1.0, 1.0}}), Error);
    }
  }
}

TEST_CASE("sampling and gathering allocate nothing once they are set up") {
  const Split split = small_split(ElementType::u8, 30, 1);
  const BatchReader reader(split, measure_normalization(split.images));
  Sampler sampler({.seed = 1, .count = 30, .batch = 8});
  std::vector<float> images(static_cast<std::size_t>(8 * reader.image_size()));
  std::vector<std::int64_t> labels(8);
  const std::size_t before = testing::allocations();
  std::int64_t seen = 0;
  for (int i = 0; i < 20; ++i) {
    const auto batch = sampler.next();
    const std::size_t n = batch.indices.size();
    reader.gather(batch.indices,
                  std::span(images).first(n * static_cast<std::size_t>(reader.image_size())),
                  std::span(labels).first(n));
    seen += static_cast<std::int64_t>(n);
  }
  CHECK(testing::allocations() == before);
  CHECK(seen == 5 * 30);
}

#include "engine/parameters.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/cast.h"
#include "tests/engine/support.h"

using namespace roundoff;
using namespace roundoff::testing;

namespace {

std::int64_t held(const Context& ctx, MemoryCategory category) {
  return ctx.allocator.stats().current[static_cast<std::size_t>(category)];
}

// Sizes around the alignment, an empty one and a scalar among them.
const std::vector<Shape> kShapes{{3}, {64}, {5, 13}, {}, {0, 4}, {127}, {1}};

void add_all(ParameterArena& arena) {
  for (std::size_t i = 0; i < kShapes.size(); ++i)
    arena.add(concat("p", i), kShapes[i], Init::uniform_fan_in, 9);
}

}  // namespace

TEST_CASE("arena: flat blocks, each one allocation, parameters at multiples of 128 bytes") {
  for (const ArenaSettings& settings :
       {ArenaSettings{}, ArenaSettings{.compute = DType::fp16},
        ArenaSettings{.compute = DType::bf16}, ArenaSettings{.master = DType::fp16},
        ArenaSettings{.master = DType::fp64}}) {
    CAPTURE(name(settings.master));
    CAPTURE(name(settings.compute));
    Context ctx;
    ParameterArena arena;
    add_all(arena);
    CHECK(!arena.allocated());
    arena.allocate(ctx.allocator, settings);
    CHECK(arena.allocated());
    const bool copies = settings.compute != DType::fp32;
    CHECK(ctx.allocator.stats().system_allocations == (copies ? 3 : 2));
    CHECK(arena.numel() == 3 + 64 + 65 + 1 + 0 + 127 + 1);
    CHECK(arena.flat_master().numel() == arena.flat_size());
    CHECK(arena.flat_master().dtype() == settings.master);
    CHECK(arena.flat_gradient().dtype() ==
          (settings.master == DType::fp64 ? DType::fp64 : DType::fp32));
    CHECK(arena.flat_gradient().numel() == arena.flat_size());
    CHECK(arena.flat_compute().defined() == copies);

    const auto inside = [&](const Tensor& part, const Tensor& block, std::int64_t offset) {
      const auto at = static_cast<std::size_t>(part.data<std::byte>() - block.data<std::byte>());
      CHECK(at == static_cast<std::size_t>(offset) * size_of(block.dtype()));
      CHECK(at % 128 == 0);
      CHECK(at + part.bytes() <= block.bytes());
    };
    std::int64_t end = 0;
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      const ParameterEntry& entry = arena.entries()[i];
      CAPTURE(entry.name);
      CHECK(entry.tensor.shape() == kShapes[i]);
      CHECK(entry.offset >= end);  // no overlap
      end = entry.offset + entry.shape.numel();
      const Leaf& leaf = *entry.tensor.leaf();
      CHECK(leaf.name == entry.name);
      CHECK(!leaf.has_grad);
      CHECK(entry.steps == 0);
      inside(entry.tensor, arena.flat_master(), entry.offset);
      inside(leaf.grad, arena.flat_gradient(), entry.offset);
      if (copies) inside(leaf.compute_copy, arena.flat_compute(), entry.offset);
    }
    CHECK(end <= arena.flat_size());
    CHECK(held(ctx, MemoryCategory::parameters) ==
          static_cast<std::int64_t>(arena.flat_master().bytes() +
                                    (copies ? arena.flat_compute().bytes() : 0)));
    CHECK(held(ctx, MemoryCategory::gradients) ==
          static_cast<std::int64_t>(arena.flat_gradient().bytes()));
  }
}

TEST_CASE("arena: the same initial values for every dtype, of the seed and the parameter alone") {
  const auto initial = [](DType dtype, std::uint64_t seed, bool extra = false) {
    Context ctx;
    ParameterArena arena;
    arena.add("u", {1000}, Init::uniform_fan_in, 25);
    arena.add("n", {1000}, Init::normal);
    arena.add("z", {7}, Init::zeros);
    arena.add("o", {7}, Init::ones);
    if (extra) arena.add("more", {100}, Init::normal);
    arena.allocate(ctx.allocator, {.master = dtype, .seed = seed});
    std::vector<Values> values;
    for (std::size_t i = 0; i < 4; ++i) values.push_back(arena.entries()[i].tensor.to_vector());
    return values;
  };
  const auto fp32 = initial(DType::fp32, 1);
  CHECK(initial(DType::fp64, 1) == fp32);
  CHECK(initial(DType::fp32, 1, true) == fp32);
  CHECK(initial(DType::fp32, 2)[0] != fp32[0]);
  CHECK(initial(DType::fp32, 2)[1] != fp32[1]);
  CHECK(fp32[2] == Values(7, 0));
  CHECK(fp32[3] == Values(7, 1));
  const auto fp16 = initial(DType::fp16, 1);
  const auto bf16 = initial(DType::bf16, 1);
  for (std::size_t p = 0; p < 2; ++p) {
    for (std::size_t i = 0; i < 1000; ++i) {
      const auto value = static_cast<float>(fp32[p][i]);
      REQUIRE(fp16[p][i] == static_cast<double>(Half(value)));
      REQUIRE(bf16[p][i] == static_cast<double>(BFloat16(value)));
    }
  }
  // Uniform in +-1/5: mean within 5 sigma of 0 (sigma = 0.2 / sqrt(3 n)), both ends reached (the
  // outermost 2% missed by all of 1000 has a chance of 1e-9).
  const auto [low, high] = std::minmax_element(fp32[0].begin(), fp32[0].end());
  CHECK(*low >= -0.2F);
  CHECK(*high <= 0.2F);
  CHECK(*low < -0.2 * 0.96);
  CHECK(*high > 0.2 * 0.96);
  double mean = 0, normal_mean = 0, normal_square = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    mean += fp32[0][i] / 1000;
    normal_mean += fp32[1][i] / 1000;
    normal_square += fp32[1][i] * fp32[1][i] / 1000;
  }
  CHECK(std::abs(mean) <= 5 * 0.2 / std::sqrt(3000.0));
  CHECK(std::abs(normal_mean) <= 5 / std::sqrt(1000.0));
  CHECK(std::abs(normal_square - 1) <= 5 * std::sqrt(2 / 1000.0));
}

TEST_CASE("arena: handles stay valid, names are unique, nothing is added late") {
  Context ctx;
  ParameterArena arena;
  const Parameter w = arena.add("w", {2}, Init::ones);
  CHECK(w.declared());
  CHECK(!Parameter().declared());
  CHECK_THROWS_WITH_AS(w.tensor(), "[parameters] a parameter is used before its arena is allocated",
                       Error);
  CHECK_THROWS_AS(Parameter().tensor(), Error);
  CHECK_THROWS_WITH_AS(arena.add("w", {3}, Init::zeros), "[parameters] the name 'w' is taken",
                       Error);
  arena.add_buffer("w", {2}, 0);  // buffers have names of their own
  CHECK_THROWS_AS(arena.add_buffer("w", {2}, 0), Error);
  std::vector<Parameter> many;
  for (int i = 0; i < 100; ++i) many.push_back(arena.add(concat("m", i), {1}, Init::ones));
  CHECK(arena.entries().size() == 101);

  // Asked for before there is anything.
  CHECK_THROWS_AS(arena.zero_grad(), Error);
  CHECK_THROWS_AS(arena.changed(false), Error);
  CHECK_THROWS_AS(arena.commit_buffers(), Error);
  CHECK_THROWS_AS(arena.discard_buffers(), Error);

  for (const ArenaSettings& bad :
       {ArenaSettings{.master = DType::i32}, ArenaSettings{.compute = DType::fp64},
        ArenaSettings{.compute = DType::u8},
        ArenaSettings{.master = DType::fp16, .compute = DType::fp16},
        ArenaSettings{.master = DType::fp64, .compute = DType::bf16}}) {
    CHECK_THROWS_AS(arena.allocate(ctx.allocator, bad), Error);
    CHECK(!arena.allocated());
  }
  CHECK(ctx.allocator.stats().system_allocations == 0);
  arena.allocate(ctx.allocator, {});
  CHECK(w.tensor().to_vector() == Values{1, 1});
  CHECK(many[99].tensor().leaf()->name == "m99");
  const Tensor& tensor = w;
  CHECK(&tensor == &w.tensor());
  CHECK_THROWS_AS(arena.add("late", {1}, Init::zeros), Error);
  CHECK_THROWS_AS(arena.add_buffer("late", {1}, 0), Error);
  CHECK_THROWS_AS(arena.allocate(ctx.allocator, {}), Error);
}

TEST_CASE("arena: none, or only empty, parameters") {
  Context ctx;
  ParameterArena none, empty;
  none.allocate(ctx.allocator, {});
  CHECK(none.allocated());
  CHECK(none.numel() == 0);
  none.zero_grad();
  empty.add("e", {0}, Init::normal);
  empty.allocate(ctx.allocator, {.compute = DType::bf16});
  CHECK(empty.numel() == 0);
  Optimizer optimizer(ctx, empty, {});
  StepStatus status;
  add_gradient(ctx, empty.entries()[0].tensor, {});
  optimizer.inspect({}, status);
  CHECK(status.present == 1);
  optimizer.apply(0.1, status);
  CHECK(empty.entries()[0].steps == 1);
}

TEST_CASE("buffers: what a step staged is committed or dropped") {
  Context ctx;
  ParameterArena arena;
  Buffer& mean = arena.add_buffer("mean", {2}, 0.25);
  Buffer& count = arena.add_buffer("count", {}, 3, DType::i64);
  Buffer& low = arena.add_buffer("low", {1}, 2049, DType::fp16);
  arena.allocate(ctx.allocator, {});
  CHECK(mean.value.to_vector() == Values{0.25, 0.25});
  CHECK(mean.staged.to_vector() == Values{0.25, 0.25});
  CHECK(mean.staged.raw() != mean.value.raw());
  CHECK(count.value.item() == 3);
  CHECK(low.value.item() == 2048);

  mean.staged.data<float>()[1] = 7;
  ++*count.staged.data<std::int64_t>();
  CHECK(mean.value.at(1) == 0.25);
  arena.discard_buffers();
  CHECK(mean.staged.at(1) == 0.25);
  CHECK(count.staged.item() == 3);

  mean.staged.data<float>()[1] = 7;
  ++*count.staged.data<std::int64_t>();
  arena.commit_buffers();
  CHECK(mean.value.to_vector() == Values{0.25, 7});
  CHECK(count.value.item() == 4);
  mean.staged.data<float>()[0] = 9;
  CHECK(mean.value.at(0) == 0.25);
}

TEST_CASE("gradients are absent after zero_grad, whatever their block holds") {
  Context ctx;
  ParameterArena arena;
  declare(arena, ctx, {{1, 2}, {3}});
  add_gradient(ctx, arena.entries()[0].tensor, {5, 6});
  CHECK(arena.flat_gradient().at(0) == 5);
  CHECK(arena.entries()[0].tensor.leaf()->has_grad);
  CHECK(!arena.entries()[1].tensor.leaf()->has_grad);
  arena.zero_grad();
  CHECK(!arena.entries()[0].tensor.leaf()->has_grad);
  // The next gradient overwrites; a NaN that the last window left must not shine through.
  arena.flat_gradient().data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  add_gradient(ctx, arena.entries()[0].tensor, {1, 1});
  CHECK(gradient(arena.entries()[0].tensor) == Values{1, 1});
}

TEST_CASE("changed masters make their roundings stale; an update keeps those that it wrote") {
  Context ctx;
  ParameterArena arena;
  declare(arena, ctx, {{1.5}, {2.5}}, {.compute = DType::bf16});
  const auto& entries = arena.entries();
  const auto rounded = [&](std::size_t i) {
    return autocast_input(ctx, entries[i].tensor, DType::bf16);
  };
  CHECK(rounded(0).item() == 1.5);
  CHECK(rounded(0).raw() == arena.flat_compute().raw());

  // An update whose gradient is that of the first alone. The second has never been rounded: its
  // copy holds nothing yet, and must not be taken for current.
  add_gradient(ctx, entries[0].tensor, {1});
  Optimizer optimizer(ctx, arena, {.kind = OptimizerSettings::Kind::sgd});
  StepStatus status;
  optimizer.inspect({}, status);
  const std::uint64_t untouched = entries[1].tensor.leaf()->version;
  optimizer.apply(0.5, status);
  CHECK(entries[0].tensor.item() == 1);
  CHECK(arena.flat_compute().at(0) == 1);  // written in the same pass
  CHECK(rounded(0).item() == 1);
  CHECK(rounded(1).item() == 2.5);
  CHECK(entries[1].tensor.leaf()->version == untouched);

  entries[0].tensor.data<float>()[0] = 8;
  arena.changed(false);
  CHECK(rounded(0).item() == 8);
}

TEST_CASE("an update does not vouch for a copy in another type than the arena's") {
  Context ctx;
  ParameterArena arena;
  declare(arena, ctx, {{1}}, {.compute = DType::fp16});
  const Tensor& w = arena.entries()[0].tensor;
  Optimizer optimizer(ctx, arena, {.kind = OptimizerSettings::Kind::sgd});
  for (int step = 1; step <= 3; ++step) {
    // An override, or a self test, asks for bf16 where the arena keeps fp16.
    CHECK(autocast_input(ctx, w, DType::bf16).item() == step);
    add_gradient(ctx, w, {-1});
    StepStatus status;
    optimizer.inspect({}, status);
    optimizer.apply(1.0, status);
    arena.zero_grad();
    CHECK(autocast_input(ctx, w, DType::bf16).item() == step + 1);
    CHECK(arena.flat_compute().at(0) == step + 1);
  }
  CHECK(autocast_input(ctx, w, DType::fp16).item() == 4);
}

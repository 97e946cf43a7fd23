// The sm_90a kernels of conv2d: bit for bit what the rung tiles gives, and the model of an H100.
#include "tests/simt_kernels/sm90_conv2d.h"

#include <doctest/doctest.h>

#include "kernels/conv2d/conv2d.h"
#include "tests/simt_kernels/sim_device.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

struct Case {
  std::int64_t n, h, w, c, k, r, s;
  Conv2dParams params;
  Shape x() const { return {n, h, w, c}; }
  Shape filters() const { return {k, r, s, c / params.groups}; }
  Shape y() const {
    const Conv2dShape z = conv2d_shape(x(), filters(), params);
    return z.y();
  }
};
const Case kCases[] = {
    {2, 7, 9, 24, 40, 3, 3, {.padding = {1, 1}}},
    {3, 8, 5, 8, 16, 3, 2, {.padding = {2, 0}}},
    {1, 12, 11, 72, 24, 2, 3, {.padding = {1, 3}, .dilation = {2, 2}}},
    {2, 9, 10, 16, 72, 3, 3, {.stride = {2, 2}, .padding = {1, 1}}},
    {2, 31, 37, 8, 16, 3, 2, {.stride = {3, 2}, .padding = {1, 0}, .dilation = {1, 2}}},
    {1, 6, 6, 128, 128, 3, 3, {.padding = {1, 1}, .groups = 2}},
    {2, 5, 6, 64, 48, 3, 3, {.padding = {1, 1}}},
    {1, 5, 5, 8, 264, 5, 5, {.padding = {3, 4}}},
};
constexpr Sm90Tile kTiles[] = {Sm90Tile::small, Sm90Tile::medium, Sm90Tile::large};

Array any(DType dtype, const Shape& shape, std::mt19937& random) {
  return Array(dtype, shape, normal(shape.numel(), dtype, random));
}

// Results of a case, by these kernels on the device or by conv2d.
struct Run {
  const Case& c;
  ConvPass pass;
  Array images, other, bias, y;
  Write write = Write::overwrite;

  Run(const Case& problem, ConvPass which, DType dtype, DType to, std::mt19937& random)
      : c(problem),
        pass(which),
        images(any(dtype, pass == ConvPass::grad_input ? c.y() : c.x(), random)),
        other(any(dtype, pass == ConvPass::grad_weight ? c.y() : c.filters(), random)),
        bias(any(DType::fp32, {c.k}, random)),
        y(any(to,
              pass == ConvPass::forward      ? c.y()
              : pass == ConvPass::grad_input ? c.x()
                                             : c.filters(),
              random)) {}

  template <class F>
  Array with(SimDevice& device, F&& f) const {
    const Resident a(device, images), b(device, other), d(device, bias);
    Array result = on_device(
        device, y,
        [&](const Out& out) {
          f(*a, *b, pass == ConvPass::forward ? *d : ConstView::absent(), out);
        },
        write);
    CHECK(result.guards_intact());
    return result;
  }
  Array by_tiles(SimDevice& device, Conv2dParams params) const {
    params.kernel = ProductKernel::tiles;
    return with(device,
                [&](const ConstView& a, const ConstView& b, const ConstView& d, const Out& out) {
                  const SimTarget target = device.target();
                  Scratch& scratch = device.scratch();
                  if (pass == ConvPass::forward)
                    conv2d_forward(target, params, a, b, d, out, scratch);
                  if (pass == ConvPass::grad_input)
                    conv2d_grad_input(target, params, a, b, out, scratch);
                  if (pass == ConvPass::grad_weight)
                    conv2d_grad_weight(target, params, a, b, out, scratch);
                });
  }
  std::string refuses(SimDevice& device, const Conv2dParams& params) const {
    std::string why;
    with(device, [&](const ConstView& a, const ConstView& b, const ConstView&, const Out&) {
      why = sm90_conv2d_refuses(device.target(), {pass, params, c.x(), c.filters(), {}, {}}, a, b);
    });
    return why;
  }
  Array by_sm90(SimDevice& device, const Conv2dParams& params, Sm90Options options,
                bool split = false) const {
    return with(device,
                [&](const ConstView& a, const ConstView& b, const ConstView& d, const Out& out) {
                  sm90_conv2d(device.target(), {pass, params, c.x(), c.filters(), split, options},
                              a, b, d, out, device.scratch());
                });
  }
};

constexpr ConvPass kPasses[] = {ConvPass::forward, ConvPass::grad_input, ConvPass::grad_weight};

}  // namespace

TEST_CASE("conv2d on sm_90a has the bits of the rung tiles, in every pass") {
  std::mt19937 random(97);
  SimDevice device;
  int taken[3] = {};
  std::size_t turn = 0;
  for (const Case& c : kCases)
    for (std::size_t pass = 0; pass < 3; ++pass)
      for (const Sm90Tile tile : kTiles)
        for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
          const DType to = ++turn % 3 == 0 ? DType::fp32
                           : turn % 3 == 1 ? DType::fp16
                                           : DType::bf16;
          Conv2dParams params = c.params;
          params.tf32 = dtype == DType::fp32;
          if (pass == 0 && turn % 2 == 0) params.activation = Activation::relu;
          Run run(c, kPasses[pass], dtype, to, random);
          if (pass == 2 && to == DType::fp32) run.write = Write::accumulate;
          CAPTURE(c.x());
          CAPTURE(pass);
          CAPTURE(static_cast<int>(tile));
          CAPTURE(name(dtype));
          if (!run.refuses(device, params).empty()) continue;
          ++taken[pass];
          CHECK(same_bits(run.by_sm90(device, params, {tile, 2}), run.by_tiles(device, params)));
        }
  // Those that are refused are few enough.
  CHECK(taken[0] == 72);
  CHECK(taken[1] == 36);
  CHECK(taken[2] == 12);
}

TEST_CASE("conv2d on sm_90a as an H100 adds has the bits of the host model") {
  std::mt19937 random(98);
  SimDevice device;
  const Case c{1, 5, 6, 64, 16, 3, 3, {.padding = {1, 1}, .accumulator = Accumulator::h100}};
  for (const ConvPass pass : kPasses) {
    const Run run(c, pass, DType::bf16, DType::fp32, random);
    Array want = run.y;
    Scratch scratch;
    if (pass == ConvPass::forward)
      conv2d_forward(Ref{}, c.params, *run.images, *run.other, *run.bias, want.out(), scratch);
    if (pass == ConvPass::grad_input)
      conv2d_grad_input(Ref{}, c.params, *run.images, *run.other, want.out(), scratch);
    if (pass == ConvPass::grad_weight)
      conv2d_grad_weight(Ref{}, c.params, *run.images, *run.other, want.out(), scratch);
    CHECK(same_bits(run.by_sm90(device, c.params, {Sm90Tile::small, 0}), want));
  }
}

TEST_CASE("conv2d on sm_90a cuts the weights' sums by their sizes alone") {
  std::mt19937 random(99);
  const Case c{2, 40, 30, 64, 8, 1, 3, {.padding = {0, 1}}};
  SimDevice device;
  Run run(c, ConvPass::grad_weight, DType::fp16, DType::fp32, random);
  // Integers: exact in any order.
  for (Array* operand : {&run.images, &run.other}) {
    std::vector<double> v = operand->values();
    for (double& x : v) x = static_cast<double>(random() % 5) - 2;
    *operand = Array(DType::fp16, operand->shape(), v);
  }
  device.emulator().reset_counters();
  const Array cut = run.by_sm90(device, c.params, {Sm90Tile::small, 3}, true);
  CHECK(device.emulator().counters().launches == 2);
  CHECK(same_bits(cut, run.by_sm90(device, c.params, {Sm90Tile::small, 0}, false)));
  CHECK(same_bits(cut, run.by_tiles(device, c.params)));
}

TEST_CASE("what conv2d on sm_90a does not take it refuses, with the reason") {
  std::mt19937 random(100);
  SimDevice device;
  const auto why = [&](const Case& c, ConvPass pass, DType dtype, bool tf32 = false) {
    Conv2dParams params = c.params;
    params.tf32 = tf32;
    const Run run(c, pass, dtype, DType::fp32, random);
    const std::string text = run.refuses(device, params);
    if (!text.empty())
      CHECK_THROWS_WITH_AS(run.by_sm90(device, params, {}), doctest::Contains(text.c_str()), Error);
    return text;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const DType h = DType::fp16, f = DType::fp32;
  const ConvPass fwd = ConvPass::forward, in = ConvPass::grad_input, wgt = ConvPass::grad_weight;
  const Case plain{1, 8, 8, 64, 64, 3, 3, {.padding = {1, 1}}};
  for (const ConvPass pass : kPasses) CHECK(why(plain, pass, h).empty());
  CHECK(why(plain, fwd, f, true).empty());
  CHECK(has(why(plain, in, f, true), "K-major"));
  CHECK(has(why(plain, wgt, f, true), "K-major"));
  CHECK(has(why(plain, fwd, f), "not to be rounded"));
  CHECK(has(why({1, 8, 8, 3, 64, 3, 3, {}}, fwd, h), "channels are of 6 bytes"));
  CHECK(has(why({1, 8, 8, 64, 12, 3, 3, {}}, in, h), "channels are of 24 bytes"));
  CHECK(has(why({1, 8, 8, 64, 12, 3, 3, {}}, wgt, h), "dy's channels"));
  CHECK(has(why({1, 8, 8, 24, 8, 3, 3, {}}, wgt, h), "24 channels of a group"));
  CHECK(has(why({1, 8, 8, 32, 32, 3, 3, {.groups = 2}}, fwd, h), "16 channels of a group"));
  CHECK(has(why({1, 8, 8, 64, 64, 3, 3, {.stride = {1, 2}}}, in, h), "stride 2 skips"));
  CHECK(has(why({1, 30, 30, 64, 64, 1, 1, {.stride = {9, 1}}}, fwd, h), "stride 9"));
  CHECK(has(why({1, 1, 8, 8, 8, 3, 1, {.padding = {128, 0}, .dilation = {128, 1}}}, fwd, h),
            "reach over 256"));
  CHECK(has(why({1, 8, 8, 8, 8, 1, 1, {.padding = {128, 0}}}, fwd, h), "padding 128"));
  CHECK(has(why({1, 300, 8, 8, 8, 3, 1, {.dilation = {120, 1}}}, fwd, h), "-240 pixels"));
  device.emulator().config.architecture = simt::SimArchitecture::sm_80;
  const Run run(plain, fwd, h, f, random);
  CHECK_THROWS_WITH(run.by_sm90(device, plain.params, {}), doctest::Contains("sm_90a"));
}

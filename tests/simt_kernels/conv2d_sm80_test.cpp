// Convolutions on tensor cores: values, bits of a model of the arithmetic, batches, named kernels.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/sum_bound.h"
#include "tests/simt_kernels/conv2d_cases.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr ConvPass kPasses[] = {ConvPass::forward, ConvPass::grad_input, ConvPass::grad_weight};

struct Kind {
  DType dtype;
  bool tf32;
};
constexpr Kind kKinds[] = {{DType::fp16, false}, {DType::bf16, false}, {DType::fp32, true}};

// Values that tf32 holds too.
std::vector<double> values(const Shape& shape, std::mt19937& random) {
  std::normal_distribution<double> normal_values;
  std::vector<double> v(static_cast<std::size_t>(shape.numel()));
  for (double& x : v)
    x = static_cast<double>(
        static_cast<float>(BFloat16(static_cast<float>(normal_values(random)))));
  return v;
}

}  // namespace

TEST_CASE("conv2d on tensor cores agrees with the oracle within the bound") {
  std::mt19937 random(1);
  double worst = 0;
  std::uint64_t schedule = 0;
  for (const ConvCase& c : kConvCases) {
    CAPTURE(c.what);
    for (const Kind& kind : kKinds) {
      for (const ConvPass pass : kPasses) {
        const Shape left = left_shape(c, pass), right = right_shape(c, pass),
                    result = result_shape(c, pass);
        const std::vector<double> a = values(left, random), b = values(right, random);
        Conv2dParams p = c.params();
        p.tf32 = kind.tf32;
        p.kernel = ProductKernel::sm80;
        const std::int64_t offset = schedule % 3 == 2 ? 1 : 0;
        SimDevice device(schedule++ % kSchedules);
        const DType out = schedule % 2 == 0 ? DType::fp32 : kind.dtype;
        const Array y =
            device_pass(device, pass, p, Array(kind.dtype, left, a, offset),
                        Array(kind.dtype, right, b, offset), nullptr, Array(out, result, offset));
        CHECK(y.guards_intact());
        const double ratio = worst_ratio(y.values(), exact_pass(c, pass, a, b),
                                         exact_pass(c, pass, absolute(a), absolute(b)),
                                         terms_of(c, pass) + 1, DType::fp32, out);
        CHECK(ratio <= 1);
        worst = std::max(worst, ratio);
      }
    }
  }
  MESSAGE("largest error / bound: ", worst);
}

TEST_CASE("conv2d on tensor cores has the bits of the model of their arithmetic") {
  std::mt19937 random(2);
  std::uint64_t schedule = 0;
  for (const ConvCase& c : kConvCases) {
    CAPTURE(c.what);
    for (const Kind& kind : kKinds) {
      for (const Accumulator gpu : {Accumulator::a100, Accumulator::h100}) {
        for (const ConvPass pass : kPasses) {
          const Shape left = left_shape(c, pass), right = right_shape(c, pass);
          const Array a(kind.dtype, left, values(left, random)),
              b(kind.dtype, right, values(right, random));
          Conv2dParams p = c.params();
          p.tf32 = kind.tf32;
          p.accumulator = gpu;
          Array want(DType::fp32, result_shape(c, pass));
          Scratch scratch;
          run_pass(Ref{}, pass, p, *a, *b, ConstView::absent(), want.out(), scratch);
          SimDevice device(schedule++ % kSchedules);
          const Array got = device_pass(device, pass, p, a, b, nullptr,
                                        Array(DType::fp32, result_shape(c, pass)));
          CHECK(same_bits(got, want));
        }
      }
    }
  }
}

TEST_CASE("conv2d: operands of two types are widened on their way in, however large the product") {
  // Enough results for tiles that copy operands of one type as they are.
  const ConvCase c{"two types", 1, 64, 97, 8, 72, 1, 2};
  std::mt19937 random(5);
  const std::vector<double> a = values(c.x(), random), b = values(c.filters(), random);
  for (const DType left : {DType::fp16, DType::fp32}) {
    const Array x(left, c.x(), a),
        w(left == DType::fp16 ? DType::fp32 : DType::fp16, c.filters(), b);
    Conv2dParams p = c.params();
    p.tf32 = true;
    p.accumulator = Accumulator::h100;
    Array want(DType::fp32, c.y());
    Scratch scratch;
    run_pass(Ref{}, ConvPass::forward, p, *x, *w, ConstView::absent(), want.out(), scratch);
    SimDevice device;
    const Array got =
        device_pass(device, ConvPass::forward, p, x, w, nullptr, Array(DType::fp32, c.y()));
    CHECK(same_bits(got, want));
  }
}

TEST_CASE("conv2d: kernels that add in fp32 give the same bits, and end a sum in the same way") {
  std::mt19937 random(3);
  for (const ConvCase& c : kConvCases) {
    CAPTURE(c.what);
    for (const Kind& kind : kKinds) {
      for (const ConvPass pass : kPasses) {
        const Shape left = left_shape(c, pass), right = right_shape(c, pass),
                    result = result_shape(c, pass);
        const Array a(kind.dtype, left, values(left, random)),
            b(kind.dtype, right, values(right, random));
        const bool forward = pass == ConvPass::forward;
        const Shape channels{c.k_group * c.groups};
        const Array bias(DType::fp32, channels, values(channels, random));
        const Array held(DType::fp32, result, values(result, random));
        const auto run = [&](ProductKernel kernel, Activation activation, DType out, Write write) {
          Conv2dParams p = c.params();
          p.tf32 = kind.tf32;
          p.kernel = kernel;
          if (forward) p.activation = activation;
          SimDevice device;
          return device_pass(device, pass, p, a, b, forward ? &bias : nullptr,
                             write == Write::accumulate ? held : Array(out, result), write);
        };
        for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
          for (const DType out : {DType::fp16, DType::fp32}) {
            if (!forward && activation != Activation::none) continue;
            const Array want = run(ProductKernel::tiles, activation, out, Write::overwrite);
            for (const ProductKernel kernel :
                 {ProductKernel::sm80, ProductKernel::mma, ProductKernel::naive})
              CHECK(same_bits(run(kernel, activation, out, Write::overwrite), want));
          }
        }
        CHECK(
            same_bits(run(ProductKernel::sm80, Activation::none, DType::fp32, Write::accumulate),
                      run(ProductKernel::tiles, Activation::none, DType::fp32, Write::accumulate)));
      }
    }
  }
}

TEST_CASE("conv2d on tensor cores: an output's bits do not depend on the rest of the batch") {
  std::mt19937 random(4);
  // Large enough for other tiles than those of one sample.
  for (const std::int64_t channels : {64, 72}) {
    ConvCase all{"batch", 40, 6, 6, channels, channels, 3, 3, {2, 1}, {1, 1}};
    ConvCase one = all;
    one.n = 1;
    for (const ConvPass pass : {ConvPass::forward, ConvPass::grad_input}) {
      const Shape left = left_shape(all, pass), right = right_shape(all, pass);
      const std::vector<double> a = values(left, random), b = values(right, random);
      const auto sample = [](const std::vector<double>& v) {
        const auto n = static_cast<std::ptrdiff_t>(v.size() / 40);
        return std::vector<double>(v.begin() + 17 * n, v.begin() + 18 * n);
      };
      const Array weights(DType::fp16, right, b);
      SimDevice device;
      device.emulator().config.tensor_core = simt::TensorCoreModel::h100;
      const Array of_all =
          device_pass(device, pass, all.params(), Array(DType::fp16, left, a), weights, nullptr,
                      Array(DType::fp32, result_shape(all, pass)));
      const Array of_one = device_pass(
          device, pass, one.params(), Array(DType::fp16, left_shape(one, pass), sample(a)), weights,
          nullptr, Array(DType::fp32, result_shape(one, pass)));
      CHECK(of_one.values() == sample(of_all.values()));
    }
  }
}

TEST_CASE("conv2d's gradient: taps that a stride passes by do not multiply") {
  const double inf = std::numeric_limits<double>::infinity();
  // Stride 2 and one output: pixels of an odd row or column have no gradient through the first tap.
  const ConvCase c{"strided", 1, 3, 3, 8, 8, 3, 3, {2, 2}, {0, 0}};
  std::vector<double> w(8 * 9 * 8, 1.0);
  for (std::size_t k = 0; k < 8; ++k)
    for (std::size_t i = 0; i < 8; ++i) w[(k * 9 + 0) * 8 + i] = inf;
  for (const ProductKernel kernel : {ProductKernel::sm80, ProductKernel::tiles}) {
    Conv2dParams p = c.params();
    p.kernel = kernel;
    SimDevice device;
    const Array dx =
        device_pass(device, ConvPass::grad_input, p, Array(DType::fp16, c.y(), ones(c.y().numel())),
                    Array(DType::fp16, c.filters(), w), nullptr, Array(DType::fp32, c.x()));
    CHECK(dx[0] == inf);
    for (const std::int64_t pixel : {1, 3, 4, 5, 7}) CHECK(dx[pixel * 8] == 8);
  }
}

TEST_CASE("conv2d: what the last step of a sum finds beyond its taps does not multiply") {
  const double inf = std::numeric_limits<double>::infinity();
  const ConvCase cases[] = {{"through registers", 1, 6, 6, 3, 3, 3, 3},
                            {"in place", 1, 6, 6, 8, 8, 3, 3},
                            {"from its first chunks on", 1, 6, 6, 8, 8, 1, 2}};
  for (const ConvCase& c : cases) {
    for (const ConvPass pass : {ConvPass::forward, ConvPass::grad_input}) {
      // Infinite: the line that one more row of taps would meet (a zero of the other operand makes
      // a NaN of it). Then the rows of results that have no part in it.
      const bool forward = pass == ConvPass::forward;
      const Shape left = left_shape(c, pass), right = right_shape(c, pass),
                  result = result_shape(c, pass);
      const std::int64_t line = left[2] * left[3], row = result[2] * result[3];
      const std::int64_t from = (forward ? 5 : 0) * line, first = (forward ? 0 : c.r) * row;
      std::vector<double> a = ones(left.numel());
      const std::vector<double> b = ones(right.numel()), want = exact_pass(c, pass, a, b);
      for (std::int64_t i = from; i < from + line; ++i) a[static_cast<std::size_t>(i)] = inf;
      for (const ProductKernel kernel :
           {ProductKernel::sm80, ProductKernel::mma, ProductKernel::tiles, ProductKernel::naive}) {
        CAPTURE(c.what);
        CAPTURE(forward);
        CAPTURE(name(kernel));
        Conv2dParams p = c.params();
        p.kernel = kernel;
        SimDevice device;
        const Array y =
            device_pass(device, pass, p, Array(DType::fp16, left, a), Array(DType::fp16, right, b),
                        nullptr, Array(DType::fp32, result));
        for (std::int64_t i = first; i < first + (6 - c.r) * row; ++i)
          CHECK(y[i] == want[static_cast<std::size_t>(i)]);
      }
    }
  }
}

TEST_CASE("conv2d: a kernel that does not take a convolution says why") {
  SimDevice device;
  const ConvCase& c = kConvCases[0];
  const auto message = [&](DType left, DType right, ProductKernel kernel, Accumulator accumulator) {
    Conv2dParams p = c.params();
    p.kernel = kernel;
    p.accumulator = accumulator;
    try {
      device_pass(device, ConvPass::forward, p, Array(left, c.x(), ones(c.x().numel())),
                  Array(right, c.filters(), ones(c.filters().numel())), nullptr,
                  Array(DType::fp32, c.y()));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const auto fp32 = Accumulator::fp32;
  CHECK(message(DType::fp16, DType::fp16, ProductKernel::sm80, fp32).empty());
  CHECK(message(DType::fp32, DType::fp32, ProductKernel::tiles, fp32).empty());
  const std::string start = "[conv2d] kernel ", middle = " does not take this product: ";
  CHECK(message(DType::fp32, DType::fp16, ProductKernel::sm80, fp32) ==
        start + "sm80" + middle +
            "tensor cores take two operands of fp16 or of bf16, or fp32 ones as tf32; fp32 and "
            "fp16 given");
  CHECK(message(DType::fp64, DType::fp64, ProductKernel::sm80, fp32) ==
        start + "sm80" + middle + "sums in fp64 are for the kernel tiles");
  CHECK(message(DType::fp16, DType::fp16, ProductKernel::tiles, Accumulator::h100) ==
        start + "tiles" + middle +
            "accumulator h100 is tensor cores', which this kernel does not use");
  CHECK(message(DType::fp16, DType::fp16, ProductKernel::wgmma, fp32) ==
        start + "wgmma" + middle + "convolutions on sm_90a have the kernel sm90");
  CHECK(message(DType::fp16, DType::fp16, ProductKernel::sm90, Accumulator::h100) ==
        start + "sm90" + middle +
            "tensor cores add blocks of 16 products, which its channels, padded to whole ones, "
            "would shift");
}

// The vendor's libraries behind the interface of our products, with stand-ins on the emulator:
// whole numbers, whose results have the bits of the reference.
#include "bench/cuda/vendor.h"

#include <doctest/doctest.h>

#include <cstring>

#include "engine/context.h"
#include "engine/data/random.h"
#include "kernels/simt/runtime_sim.h"
#include "ops/run.h"

namespace roundoff::bench {
namespace {

const std::vector<std::filesystem::path> kFolders{FAKE_FOLDER};

VendorNames fakes() {
  return {.folders = kFolders, .cublas = {"libfake_cublas.so"}, .cudnn = {"libfake_cudnn.so"}};
}

struct Side {
  explicit Side(const std::shared_ptr<simt::Runtime>& runtime) : device(runtime) {}
  Context host, device;
  RandomStream random{5, RandomUse::checks, 9};

  Tensor whole(const Shape& shape, DType dtype) {
    std::vector<double> v(static_cast<std::size_t>(shape.numel()));
    for (double& x : v) x = static_cast<double>(random.below(7)) - 3;
    return Tensor::from(host.allocator, v, shape, dtype);
  }
};

bool same(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

TEST_CASE("matrix products by cuBLASLt's interface") {
  const auto runtime = simt::open_sim({});
  Side side(runtime);
  CublasLt library(runtime, kFolders, {"libfake_cublas.so"}, 1 << 16);
  REQUIRE(library.found());
  REQUIRE(library.why_not().empty());
  CHECK(library.name() == "cuBLASLt 13.2.3");

  struct Variant {
    DType in, out;
    bool bias, relu, adds;
    std::int64_t batch;
  };
  const Variant variants[] = {{DType::bf16, DType::bf16, false, false, false, 1},
                              {DType::fp16, DType::fp16, true, true, false, 1},
                              {DType::fp16, DType::fp32, false, false, true, 1},
                              {DType::bf16, DType::fp32, true, false, false, 3},
                              {DType::fp32, DType::fp32, false, true, false, 2},
                              {DType::fp64, DType::fp64, false, false, true, 1}};
  for (const Variant& v : variants)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        CAPTURE(name(v.in));
        CAPTURE(ta);
        CAPTURE(tb);
        const std::int64_t m = 5, n = 7, k = 11;
        GemmParams p{.batch = v.batch, .m = m, .n = n, .k = k, .trans_a = ta, .trans_b = tb};
        if (v.batch > 1) p.stride_a = m * k, p.stride_b = k * n;
        p.alpha = v.bias ? 1 : 2;
        p.beta = v.bias ? 1 : 0;
        p.activation = v.relu ? Activation::relu : Activation::none;
        const auto with_batch = [&](std::int64_t rows, std::int64_t columns) {
          return v.batch > 1 ? Shape{v.batch, rows, columns} : Shape{rows, columns};
        };
        const Tensor a = side.whole(ta ? with_batch(k, m) : with_batch(m, k), v.in);
        const Tensor b = side.whole(tb ? with_batch(n, k) : with_batch(k, n), v.in);
        const Tensor c = side.whole({n}, v.out);
        const Tensor before = side.whole(with_batch(m, n), v.out);
        const Write write = v.adds ? Write::accumulate : Write::overwrite;

        Tensor expected = Tensor::empty(side.host.allocator, before.shape(), v.out);
        expected.copy_from(before);
        const ConstView none = ConstView::absent();
        gemm(Ref{}, p, a.view(), b.view(), v.bias ? ConstView(c.view()) : none,
             Out(expected.view(), write), side.host.scratch);

        Allocator& memory = side.device.allocator;
        const Tensor da = a.to(memory), db = b.to(memory), dc = c.to(memory);
        for (int time = 0; time < 2; ++time) {  // planned, and as it was planned
          Tensor fresh = before.to(memory);
          CHECK(library.gemm(side.device.stream(), p, da.view(), db.view(),
                             v.bias ? ConstView(dc.view()) : none, Out(fresh.view(), write)) == "");
          side.device.synchronize();
          CHECK(same(fresh.to(side.host.allocator), expected));
        }
      }
}

TEST_CASE("what cuBLASLt does not take is said, and nothing is queued") {
  const auto runtime = simt::open_sim({});
  Side side(runtime);
  CublasLt library(runtime, kFolders, {"libfake_cublas.so"}, 1 << 16);
  const auto why = [&](GemmParams p, DType a = DType::fp16, DType b = DType::fp16,
                       DType y = DType::fp16, bool bias = false, Shape added = {},
                       Write write = Write::overwrite) {
    const Tensor ta = side.whole({p.m, p.k}, a).to(side.device.allocator);
    const Tensor tb = side.whole({p.k, p.n}, b).to(side.device.allocator);
    const Tensor ty = Tensor::zeros(side.device.allocator, {p.m, p.n}, y);
    const Tensor tc = side.whole(bias ? added : Shape{p.n}, y).to(side.device.allocator);
    const std::string text =
        library.gemm(side.device.stream(), p, ta.view(), tb.view(),
                     bias ? ConstView(tc.view()) : ConstView::absent(), Out(ty.view(), write));
    side.device.synchronize();
    for (const double v : ty.to_vector()) CHECK(v == 0);
    return text;
  };
  const GemmParams p{.m = 4, .n = 4, .k = 4};
  GemmParams q = p;
  q.accumulator = Accumulator::h100;
  CHECK(why(q) == "no accumulator h100");
  q = p;
  q.k = 0;
  CHECK(why(q) == "no product without terms");
  q = p;
  q.activation = Activation::gelu;
  CHECK(why(q).find("gelu") != std::string::npos);
  q = p;
  q.beta = 1;
  CHECK(why(q, DType::fp16, DType::fp16, DType::fp16, true, {4, 4}) == "no added matrix here");
  q.beta = 2;
  CHECK(why(q, DType::fp16, DType::fp16, DType::fp16, true, {4}) == "no scaled bias");
  CHECK(why(p, DType::fp16, DType::bf16).find("fp16 and bf16") != std::string::npos);
  CHECK(why(p, DType::fp16, DType::fp16, DType::bf16).find("bf16") != std::string::npos);
  CHECK(why(p, DType::fp64, DType::fp64, DType::fp32).find("fp64") != std::string::npos);
  // The library's own word.
  q = p;
  q.n = 13;
  CHECK(why(q) == "cuBLASLt 13.2.3: cublasLtMatmulAlgoGetHeuristic says FAKE_NOT_SUPPORTED (15)");

  CublasLt absent(runtime, kFolders, {"libroundoff_absent.so"});
  const Tensor x = side.whole({4, 4}, DType::fp16).to(side.device.allocator);
  CHECK(absent.gemm(side.device.stream(), p, x.view(), x.view(), ConstView::absent(),
                    Out(x.view())) == "not found: libroundoff_absent.so");
}

TEST_CASE("convolutions by cuDNN's interface") {
  const auto runtime = simt::open_sim({});
  Side side(runtime);
  Cudnn library(runtime, kFolders, {"libfake_cudnn.so"}, 1 << 12);
  REQUIRE(library.why_not().empty());
  CHECK(library.name() == "cuDNN 9.19.0");
  struct Variant {
    std::int64_t stride, padding, groups;
    bool bias, relu, adds;
    DType in, out;
  };
  const Variant variants[] = {{1, 1, 1, false, false, false, DType::bf16, DType::bf16},
                              {2, 1, 1, true, true, false, DType::fp16, DType::fp16},
                              {1, 0, 2, true, false, false, DType::fp16, DType::fp32},
                              {1, 2, 1, false, true, false, DType::bf16, DType::bf16},
                              {2, 0, 1, false, false, true, DType::fp16, DType::fp32}};
  for (const Variant& v : variants) {
    CAPTURE(v.stride);
    CAPTURE(v.groups);
    Conv2dParams p{.stride = {v.stride, v.stride}, .padding = {v.padding, v.padding}};
    p.groups = v.groups;
    const Shape xs{2, 6, 5, 4}, ws{6, 3, 2, 4 / v.groups};
    const Shape ys = conv2d_shape(xs, ws, p).y();
    const Write write = v.adds ? Write::accumulate : Write::overwrite;
    const Tensor x = side.whole(xs, v.in), w = side.whole(ws, v.in), dy = side.whole(ys, v.in);
    const Tensor b = side.whole({6}, v.out);
    Allocator& memory = side.device.allocator;
    const Tensor gx = x.to(memory), gw = w.to(memory), gdy = dy.to(memory), gb = b.to(memory);
    Scratch& scratch = side.host.scratch;
    const ConstView none = ConstView::absent();
    const auto check = [&](Cudnn::Pass pass, const Conv2dParams& params, const Shape& shape,
                           const Tensor& first, const Tensor& second, const ConstView& bias,
                           auto reference) {
      const Tensor before = side.whole(shape, v.out);
      Tensor expected = Tensor::empty(side.host.allocator, shape, v.out);
      expected.copy_from(before);
      reference(Out(expected.view(), write));
      for (int time = 0; time < 2; ++time) {
        const Tensor y = before.to(memory);
        CHECK(library.convolve(side.device.stream(), pass, params, first.view(), second.view(),
                               bias, Out(y.view(), write)) == "");
        side.device.synchronize();
        CHECK(same(y.to(side.host.allocator), expected));
      }
    };
    Conv2dParams forward = p;
    forward.activation = v.relu ? Activation::relu : Activation::none;
    check(Cudnn::Pass::forward, forward, ys, gx, gw, v.bias ? ConstView(gb.view()) : none,
          [&](const Out& y) {
            conv2d_forward(Ref{}, forward, x.view(), w.view(), v.bias ? ConstView(b.view()) : none,
                           y, scratch);
          });
    check(Cudnn::Pass::grad_input, p, xs, gdy, gw, none,
          [&](const Out& dx) { conv2d_grad_input(Ref{}, p, dy.view(), w.view(), dx, scratch); });
    check(Cudnn::Pass::grad_weight, p, ws, gx, gdy, none,
          [&](const Out& dw) { conv2d_grad_weight(Ref{}, p, x.view(), dy.view(), dw, scratch); });
  }

  // What it does not take.
  const Tensor x = side.whole({1, 4, 4, 2}, DType::fp16).to(side.device.allocator);
  const Tensor w = side.whole({2, 2, 2, 2}, DType::fp16).to(side.device.allocator);
  const auto why = [&](const Conv2dParams& p, const Tensor& a, const Tensor& b) {
    const Tensor y =
        Tensor::zeros(side.device.allocator, conv2d_shape(a.shape(), b.shape(), p).y(), a.dtype());
    return library.convolve(side.device.stream(), Cudnn::Pass::forward, p, a.view(), b.view(),
                            ConstView::absent(), Out(y.view()));
  };
  CHECK(why({.dilation = {2, 2}}, x, w) ==
        "cuDNN 9.19.0: cudnnBackendFinalize says FAKE_NOT_SUPPORTED (3000)");
  CHECK(why({.accumulator = Accumulator::fp16}, x, w) == "no accumulator fp16");
  const Tensor x32 = side.whole({1, 4, 4, 2}, DType::fp32).to(side.device.allocator);
  const Tensor w32 = side.whole({2, 2, 2, 2}, DType::fp32).to(side.device.allocator);
  CHECK(why({}, x32, w32).find("tf32") != std::string::npos);
  Cudnn small(runtime, kFolders, {"libfake_cudnn.so"}, 64);
  const Tensor y = Tensor::zeros(side.device.allocator, {1, 3, 3, 2}, DType::fp16);
  CHECK(small
            .convolve(side.device.stream(), Cudnn::Pass::forward, {}, x.view(), w.view(),
                      ConstView::absent(), Out(y.view()))
            .find("128 bytes") != std::string::npos);
}

TEST_CASE("a context's library computes what it takes, and our kernels the rest") {
  const auto runtime = simt::open_sim({});
  Side side(runtime);
  VendorLibrary library(runtime, fakes());
  side.device.products = &library;
  const Tensor x = side.whole({3, 4}, DType::fp16), w = side.whole({5, 4}, DType::fp16);
  const auto run = [&](const Tensor& wt) {
    const OpParameters linear(op_signature("linear"), {});
    return run_op(side.device, linear,
                  {{"x", x.to(side.device.allocator)}, {"w", wt.to(side.device.allocator)}})
        .outputs.at("y")
        .to(side.host.allocator);
  };
  Context plain(runtime);
  const Tensor y = run(w);
  CHECK(library.log().taken == 1);
  CHECK(library.log().declined_text().empty());
  side.device.products = nullptr;
  CHECK(same(y, run(w)));
  CHECK(library.log().taken == 1);

  side.device.products = &library;
  library.reset_log();
  const Tensor odd = side.whole({13, 4}, DType::fp16);  // refused by the library
  const Tensor z = run(odd);
  CHECK(library.log().taken == 0);
  CHECK(library.log().declined_text().find("1 of 1: gemm: cuBLASLt") == 0);
  side.device.products = nullptr;
  CHECK(same(z, run(odd)));
}

}  // namespace
}  // namespace roundoff::bench

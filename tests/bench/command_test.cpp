// What `roundoff bench` is made of: problems, verdicts, predictions, the picture.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "bench/chosen.h"
#include "bench/code.h"
#include "bench/operands.h"
#include "bench/predict.h"
#include "bench/problem.h"
#include "bench/roofline.h"
#include "bench/run.h"
#include "bench/verify.h"
#include "engine/context.h"
#include "kernels/gemm/problem.h"

using namespace roundoff;
using namespace roundoff::bench;

namespace {

Problem problem_of(const std::string& operation, const std::string& size,
                   BenchPass pass = BenchPass::forward, DType dtype = DType::bf16) {
  ProblemRequest request;
  request.operations = {operation};
  (operation == "conv2d" ? request.convolutions : request.sizes) = {size};
  request.dtypes = {dtype};
  request.pass = pass;
  return make_problems(request).at(0);
}

NamedTensors run_on_host(const Problem& problem, const Operands& operands) {
  Context context;
  PassRun run(context, problem, operands);
  run();
  NamedTensors copies;
  Allocator host;
  for (const auto& [name, tensor] : run.results()) copies[name] = tensor.to(host);
  return copies;
}

// Element i of a result, moved by a few ulp of its type.
void spoil(NamedTensors& results, const std::string& name, std::int64_t i) {
  Tensor& t = results.find(name)->second;
  std::vector<double> values = t.to_vector();
  values[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>(i)] * 1.25 + 0.5;
  Allocator host;
  t = Tensor::from(host, values, t.shape(), t.dtype());
}

}  // namespace

TEST_CASE("a problem says its arithmetic and its least traffic") {
  const Problem nt = problem_of("linear", "10x20x30");
  CHECK(nt.text() == "10x20x30 nt");
  CHECK(nt.flops() == 2 * 10 * 20 * 30);
  CHECK(nt.min_bytes() == 2 * (10 * 30 + 20 * 30 + 10 * 20));
  const Problem all = problem_of("matmul", "10x20x30", BenchPass::backward);
  CHECK(all.flops() == 2 * 2 * 10 * 20 * 30);
  CHECK(all.min_bytes() == 2 * (10 * 20 + 2 * 10 * 30 + 2 * 20 * 30));
  const Problem batch = problem_of("matmul", "3x10x20x30");
  CHECK(batch.flops() == 3 * 2 * 10 * 20 * 30);
  const Problem conv = problem_of("conv2d", "2,9,8,4,6,3,3,2,1");
  CHECK(conv.conv->p() == 5);
  CHECK(conv.conv->q() == 4);
  CHECK(conv.flops() == 2.0 * (2 * 5 * 4) * 6 * (4 * 3 * 3));
  CHECK(conv.min_bytes() == 2 * (2 * 9 * 8 * 4 + 6 * 3 * 3 * 4 + 2 * 5 * 4 * 6));
  const Problem loss = problem_of("cross_entropy", "8x100");
  CHECK(loss.out_dtype == DType::fp32);
  CHECK(loss.min_bytes() == 8 * 100 * 2 + 8 * 8 + 4);
  // Its gradient reads logits, labels and the seed, and writes once.
  CHECK(problem_of("cross_entropy", "8x100", BenchPass::backward).min_bytes() ==
        2 * 8 * 100 * 2 + 8 * 8 + 4);
  // An addition's gradients are what came in.
  CHECK(problem_of("add", "8x100", BenchPass::backward).min_bytes() == 3 * 8 * 100 * 2);
}

TEST_CASE("a reduced problem is small, and keeps what kernels ask of sizes") {
  for (const Problem& p :
       {problem_of("matmul", "4096x4095x4092"), problem_of("conv2d", "32,56,56,64,256,3,3,1,1"),
        problem_of("softmax", "4096x4096"), problem_of("add", "1000000"),
        problem_of("embedding", "4096x32000x256"), problem_of("batch_norm", "64x28x28x64")}) {
    CAPTURE(p.text());
    CHECK_FALSE(is_small(p));
    const Problem small = reduced(p);
    CHECK(is_small(small));
    CHECK(small.operation() == p.operation());
  }
  const Problem odd = reduced(problem_of("matmul", "4096x4095x4092"));
  CHECK(odd.sizes[0] % 8 == 0);
  CHECK(odd.sizes[1] % 8 == 7);
  CHECK(odd.sizes[2] % 8 == 4);
  CHECK(reduced(problem_of("matmul", "5x6x7")).sizes == std::vector<std::int64_t>{5, 6, 7});
  const auto channels = [](const char* size) {
    const Problem small = reduced(problem_of("conv2d", size));
    return std::pair(small.conv->c, small.conv->k);
  };
  CHECK(channels("32,56,56,192,256,3,3,1,1") == std::pair<std::int64_t, std::int64_t>(64, 80));
  CHECK(channels("32,56,56,200,131,3,3,1,1") == std::pair<std::int64_t, std::int64_t>(56, 83));
  CHECK(channels("32,56,56,24,72,3,3,1,1") == std::pair<std::int64_t, std::int64_t>(24, 72));
}

TEST_CASE("a wrong result is noticed, whole or in part") {
  struct Case {
    std::string operation, size, array;
    BenchPass pass;
  };
  const Case cases[] = {{"matmul", "17x9x40", "y", BenchPass::forward},
                        {"matmul", "2x7x9x20", "db", BenchPass::wgrad},
                        {"linear", "17x9x40", "dx", BenchPass::dgrad},
                        {"conv2d", "2,7,6,3,5,3,3,2,1", "y", BenchPass::forward},
                        {"conv2d", "2,7,6,3,5,3,3,2,1", "dx", BenchPass::dgrad},
                        {"conv2d", "2,7,6,3,5,3,3,2,1", "dw", BenchPass::wgrad},
                        {"softmax", "5x33", "y", BenchPass::forward}};
  for (const Case& c : cases)
    for (const DType dtype : {DType::bf16, DType::fp32}) {
      CAPTURE(c.operation);
      CAPTURE(name(c.pass));
      const Problem p = problem_of(c.operation, c.size, c.pass, dtype);
      const Operands operands = make_operands(p, 3);
      NamedTensors results = run_on_host(p, operands);
      REQUIRE(results.count(c.array) == 1);
      const Verdict right = verify_all(p, operands, results);
      CHECK_MESSAGE(right.holds, right.text);
      if (p.is_product()) {
        const Verdict some = verify_written(p, operands, results);
        CHECK_MESSAGE(some.holds, some.text);
      }
      // The first element is always among those of a sample.
      spoil(results, c.array, 0);
      const Verdict wrong = verify_all(p, operands, results);
      CHECK_FALSE(wrong.holds);
      CHECK(wrong.text.find(c.array) == 0);
      if (p.is_product()) CHECK_FALSE(verify_written(p, operands, results).holds);
    }
}

TEST_CASE("transposed operands are compared with their own terms") {
  for (const char* layout : {"nn", "nt", "tn", "tt"})
    for (const BenchPass pass : {BenchPass::forward, BenchPass::dgrad, BenchPass::wgrad}) {
      CAPTURE(layout);
      ProblemRequest request;
      request.operations = {"matmul"};
      request.sizes = {"6x10x9"};
      request.layouts = {layout};
      request.pass = pass;
      const Problem p = make_problems(request).at(0);
      CHECK(p.text() == concat("6x10x9 ", layout));
      const Operands operands = make_operands(p, 4);
      const Verdict v = verify_written(p, operands, run_on_host(p, operands));
      CHECK_MESSAGE(v.holds, v.text);
    }
}

TEST_CASE("predictions: the floor of each GPU, and the model's share of it") {
  const Problem p = problem_of("matmul", "8192x8192x8192");
  Row row = begin_row(p, ProductKernel::sm90);
  add_predictions(row, p, ProductKernel::sm90);
  constexpr auto kPredicted = Provenance::predicted;
  // 2 x 8192^3 operations at 4096 a clock, 132 multiprocessors, 1.98 GHz.
  CHECK(row.number("H100_floor_us", kPredicted) ==
        doctest::Approx(2.0 * std::pow(8192, 3) / (4096 * 132 * 1.98e9) * 1e6));
  CHECK(row.number("H100_floor/model", kPredicted) > 0.5);
  CHECK(row.number("H100_floor/model", kPredicted) <= 1);
  // An A100 has a floor, and no wgmma.
  CHECK(row.number("A100_floor_us", kPredicted) > row.number("H100_floor_us", kPredicted));
  CHECK(row.find("A100_floor/model", kPredicted) == nullptr);
  for (const Metric& m : row.metrics) CHECK(m.provenance == kPredicted);

  // The products behind the gradients of 64 -> 128 channels, 3x3.
  using evidence::ProductShape;
  const auto shape = [](BenchPass pass) {
    return product_shape(problem_of("conv2d", "2,8,8,64,128,3,3,1,1", pass));
  };
  const ProductShape forward = shape(BenchPass::forward);
  CHECK((forward.m == 128 && forward.n == 128 && forward.k == 576));
  const ProductShape dgrad = shape(BenchPass::dgrad);
  CHECK((dgrad.m == 128 && dgrad.n == 64 && dgrad.k == 1152));
  const ProductShape wgrad = shape(BenchPass::wgrad);
  CHECK((wgrad.m == 128 && wgrad.n == 576 && wgrad.k == 128));
  CHECK(wgrad.output_bytes == 4);
  CHECK(forward.operations() == problem_of("conv2d", "2,8,8,64,128,3,3,1,1").flops());
  CHECK_THROWS_AS(product_shape(problem_of("softmax", "4x4")), Error);
}

TEST_CASE("predictions: sums over samples are cut as the kernels cut them") {
  const auto parts = [](const Problem& p) { return product_cut(product_problem(p)).parts; };
  const auto share = [](const Problem& p, ProductKernel kernel) {
    const auto predicted = predict_row(evidence::device_spec("A100"), p, kernel, Row());
    REQUIRE(predicted);
    return predicted->share_of_floor();
  };
  // 64 x 576 results, 5 tiles, of sums over 32 x 56 x 56 pixels: 256 / 5 parts.
  const std::string size = "32,56,56,64,64,3,3,1,1";
  const Problem wgrad = problem_of("conv2d", size, BenchPass::wgrad);
  CHECK(parts(wgrad) == 51);
  CHECK(parts(problem_of("conv2d", size)) == 1);
  CHECK(parts(problem_of("conv2d", size, BenchPass::dgrad)) == 1);
  // 459 blocks keep an A100 as busy as those of the forward pass do; 9 would not.
  CHECK(share(wgrad, ProductKernel::sm80) > 0.3);
  CHECK(share(wgrad, ProductKernel::sm80) <= 1);
  CHECK(share(wgrad, ProductKernel::mma) < share(wgrad, ProductKernel::sm80));
  // Products: whichever operand comes first transposed.
  struct Cut {
    const char* layout;
    bool forward, dgrad, wgrad;
  };
  for (const Cut& c : {Cut{"nn", false, false, true}, Cut{"nt", false, false, true},
                       Cut{"tn", true, false, false}, Cut{"tt", true, true, true}})
    for (const BenchPass pass : {BenchPass::forward, BenchPass::dgrad, BenchPass::wgrad}) {
      CAPTURE(c.layout);
      CAPTURE(name(pass));
      ProblemRequest request;
      request.operations = {"matmul"};
      request.sizes = {"512x512x512"};
      request.layouts = {c.layout};
      request.pass = pass;
      const bool cut = pass == BenchPass::forward ? c.forward
                       : pass == BenchPass::dgrad ? c.dgrad
                                                  : c.wgrad;
      // 512 deep: two parts of 256.
      CHECK(parts(make_problems(request).at(0)) == (cut ? 2 : 1));
    }
  CHECK(parts(problem_of("linear", "512x512x512", BenchPass::wgrad)) == 2);
  CHECK(parts(problem_of("linear", "512x512x512")) == 1);
}

TEST_CASE("what `automatic` is, by size, type and device") {
  const auto chosen = [](const Problem& p, int capability) {
    const auto kernel = chosen_kernel(p, capability);
    return kernel ? std::string(name(*kernel)) : "none";
  };
  CHECK(chosen(problem_of("matmul", "512x512x2048"), 90) == "sm90");
  CHECK(chosen(problem_of("matmul", "512x512x512"), 90) == "ping_pong");
  CHECK(chosen(problem_of("matmul", "512x512x512"), 80) == "sm80");
  CHECK(chosen(problem_of("matmul", "64x512x512"), 90) == "sm80");
  CHECK(chosen(problem_of("matmul", "512x508x512"), 90) == "sm80");  // lines of 1016 bytes
  CHECK(chosen(problem_of("linear", "512x508x512"), 90) == "ping_pong");
  CHECK(chosen(problem_of("matmul", "512x512x512", BenchPass::forward, DType::fp32), 90) ==
        "tiles");
  // Whole blocks of 16 channels, or of 64 of the images.
  CHECK(chosen(problem_of("conv2d", "4,14,14,64,128,3,3,1,1"), 90) == "sm90");
  CHECK(chosen(problem_of("conv2d", "4,14,14,24,128,3,3,1,1"), 90) == "sm80");
  CHECK(chosen(problem_of("conv2d", "4,14,14,32,128,3,3,1,1", BenchPass::wgrad), 90) == "sm80");
  CHECK(chosen(problem_of("conv2d", "4,14,14,56,128,1,1,1,0"), 90) == "sm80");  // less than 64 deep
  CHECK(chosen(problem_of("conv2d", "4,14,14,128,128,1,1,1,0"), 90) == "ping_pong");
  CHECK(chosen(problem_of("conv2d", "4,14,14,128,128,3,3,2,1", BenchPass::dgrad), 90) == "sm80");
  CHECK(chosen(problem_of("matmul", "512x512x512", BenchPass::backward), 90) == "none");
  CHECK(chosen(problem_of("softmax", "512x512"), 90) == "none");
}

TEST_CASE("rates above what a device can do are refused") {
  Row row;
  row.operation = "matmul";
  CHECK_NOTHROW(refuse_above_peak(row, 900e12, 1000e12, 0, 0));
  CHECK_NOTHROW(refuse_above_peak(row, 900e12, 0, 5e12, 0));
  CHECK_THROWS_AS(refuse_above_peak(row, 1001e12, 1000e12, 0, 0), Error);
  CHECK_THROWS_AS(refuse_above_peak(row, 0, 0, 5e12, 4.8e12), Error);
}

TEST_CASE("the picture: points stand where their numbers are, on decades") {
  Roofline picture;
  picture.title = "a < b & c";
  picture.roofs = {{"GPU", 1e15, 1e12}};
  picture.points = {{"first", 10, 1e13, Provenance::measured},
                    {"second", 1000, 1e14, Provenance::predicted},
                    {"nothing", 0, 1e12, Provenance::predicted}};
  const std::string svg = roofline_svg(picture);
  CHECK(svg.find("a &lt; b &amp; c") != std::string::npos);
  // x from 10^0 to 10^4 (the roof's ridge is at 1000), over 92 to 640 pixels.
  CHECK(svg.find("cx=\"229.00\"") != std::string::npos);
  CHECK(svg.find("1 rows without operations or a rate are not drawn") != std::string::npos);
  CHECK(svg.find("measured (filled)") != std::string::npos);
  CHECK(svg.find("predicted (hollow)") != std::string::npos);
  CHECK(std::count(svg.begin(), svg.end(), '<') == std::count(svg.begin(), svg.end(), '>'));
  picture.points.resize(0);
  CHECK_THROWS_AS(roofline_svg(picture), Error);
}

TEST_CASE(
    "machine code: the largest of a kernel's instantiations, for the architecture that runs") {
  using evidence::KernelCode;
  using evidence::Sass;
  std::vector<KernelCode> kernels(4);
  kernels[0].name = "product_sm80<float, 128>";
  kernels[0].architecture = 80;
  kernels[0].registers = 128;
  kernels[0].main_loop.emplace();
  kernels[0].main_loop->of(Sass::hmma).total = 64;
  kernels[1] = kernels[0];
  kernels[1].name = "product_sm80<Half, 256>";
  kernels[1].registers = 168;
  kernels[1].shared = 1024;
  kernels[2] = kernels[0];
  kernels[2].architecture = 90;
  kernels[2].registers = 255;
  kernels[3] = kernels[0];
  kernels[3].name = "product_sm80_other<float>";
  kernels[3].registers = 250;
  const CodeCensus census(kernels);
  Row row;
  census.add_to(row, {{"gemm", 256, 0}, {"product_sm80", 256, 64 * 1024}}, 80);
  constexpr auto kCounted = Provenance::counted;
  CHECK(row.number("instances", kCounted) == 2);
  CHECK(row.number("registers", kCounted) == 168);
  CHECK(row.number("HMMA_in_loop", kCounted) == 64);
  CHECK(row.number("local_accesses", kCounted, -1) == 0);
  // 168 registers x 256 threads are 43008 of 65536: one block.
  CHECK(row.number("blocks_per_sm", Provenance::modelled) == 1);
  CHECK(row.number("occupancy", Provenance::modelled) == 8.0 / 64);
  Row none;
  census.add_to(none, {{"softmax_rows", 256, 0}}, 80);
  CHECK(none.metrics.empty());
}

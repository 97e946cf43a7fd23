#include "bench/predict.h"

namespace roundoff::bench {

namespace {

using evidence::DeviceSpec;
using evidence::ProductShape;

// The GPUs of an architecture, the most usual one first.
std::vector<const DeviceSpec*> devices_of(int capability) {
  std::vector<const DeviceSpec*> some;
  for (const DeviceSpec& d : evidence::device_specs())
    if (d.architecture == capability) some.push_back(&d);
  return some;
}

// What a rung needs: 80 or 90.
int architecture_of(ProductKernel kernel) {
  return kernel == ProductKernel::wgmma || kernel == ProductKernel::sm90 ||
                 kernel == ProductKernel::ping_pong
             ? 90
             : 80;
}

// Sums over samples are: those of a product whose first operand is held transposed.
bool sums_may_be_cut(const Problem& p) {
  if (p.conv) return p.pass == BenchPass::wgrad;
  const bool a = p.product->trans_a, b = p.product->trans_b;
  switch (p.pass) {
    case BenchPass::forward:
      return a;
    case BenchPass::dgrad:  // dY B^T, or for A^T B dY^T
      return a && b;
    case BenchPass::wgrad:  // A^T dY, or for B^T dY^T A
      return b || !a;
    case BenchPass::backward:
      break;
  }
  return false;
}

}  // namespace

evidence::Arithmetic arithmetic_of(const Problem& problem) {
  using evidence::Arithmetic;
  if (problem.dtype == DType::fp64) return Arithmetic::fp64;
  if (!problem.is_product() || problem.dtype == DType::fp32) return Arithmetic::fp32;
  return problem.dtype == DType::fp16 ? Arithmetic::fp16 : Arithmetic::bf16;
}

evidence::ProductShape product_shape(const Problem& p) {
  ROUNDOFF_CHECK(p.is_product(), "bench", p.operation(), " is no product");
  ProductShape s;
  s.arithmetic = arithmetic_of(p);
  s.operand_bytes = static_cast<int>(size_of(p.dtype));
  s.output_bytes = static_cast<int>(size_of(p.out_dtype));
  std::int64_t m = 0, n = 0, k = 0;  // of the forward product
  if (p.conv) {
    m = p.conv->n * p.conv->p() * p.conv->q();
    n = p.conv->k;
    k = p.conv->c * p.conv->r * p.conv->s;
    s.least_bytes = p.min_bytes();
  } else {
    m = p.product->m;
    n = p.product->n;
    k = p.product->k;
    s.batch = std::max<std::int64_t>(p.product->lead.numel(), 1);
  }
  s.m = m, s.n = n, s.k = k;
  if (p.pass == BenchPass::dgrad) {
    s.n = k, s.k = n;
    if (p.conv) {
      // Over the image's own pixels, each of which meets as many outputs as its share of them.
      s.m = p.conv->n * p.conv->h * p.conv->w;
      s.n = p.conv->c;
      s.k = p.conv->k * p.conv->r * p.conv->s / (p.conv->stride[0] * p.conv->stride[1]);
    }
  }
  if (p.pass == BenchPass::wgrad) s.m = n, s.n = k, s.k = m;
  return s;
}

ProductProblem product_problem(const Problem& p) {
  const ProductShape s = product_shape(p);
  ProductProblem problem;
  problem.size = {.m = static_cast<unsigned>(s.m),
                  .n = static_cast<unsigned>(s.n),
                  .depth = static_cast<unsigned>(s.k),
                  .results = static_cast<unsigned>(s.batch)};
  problem.wide = p.dtype == DType::fp64;
  problem.operand = mma_operand({}, p.dtype, p.dtype, false);
  problem.may_split = sums_may_be_cut(p);
  return problem;
}

std::optional<evidence::Prediction> predict_row(const DeviceSpec& device, const Problem& problem,
                                                ProductKernel kernel, const Row& row) {
  if (!problem.is_product()) {
    // Operations in fp32, by CUDA cores.
    const double counted = row.number("MB", Provenance::counted) * 1e6;
    return evidence::predict_stream(device, counted > 0 ? counted : problem.min_bytes(),
                                    problem.flops(), arithmetic_of(problem));
  }
  if (kernel == ProductKernel::automatic || problem.pass == BenchPass::backward ||
      architecture_of(kernel) > device.architecture)
    return std::nullopt;
  // The others are for tensor cores.
  const bool plain = kernel == ProductKernel::naive || kernel == ProductKernel::tiles;
  if (!plain && !is_16bit(problem.dtype)) return std::nullopt;
  const ProductShape shape = product_shape(problem);
  const auto parts = static_cast<int>(product_cut(product_problem(problem)).parts);
  return evidence::predict(device, shape, evidence::best_plan(device, shape, kernel, parts));
}

void add_predictions(Row& row, const Problem& problem, ProductKernel kernel) {
  constexpr auto kPredicted = Provenance::predicted;
  for (const DeviceSpec& device : evidence::device_specs()) {
    const std::string name(device.name);
    const double floor =
        evidence::roofline_floor(device, arithmetic_of(problem), row.flops, row.min_bytes).seconds;
    row.add(name + "_floor_us", kPredicted, floor * 1e6, "us");
    const auto model = predict_row(device, problem, kernel, row);
    if (!model || floor <= 0 || model->seconds <= 0) continue;
    row.add_detail(name + "_model_us", kPredicted, model->seconds * 1e6, "us");
    row.add(name + "_floor/model", kPredicted, floor / model->seconds, {}, 3);
  }
}

Roofline roofline_of(const Report& report, int capability) {
  Roofline picture;
  const std::vector<const DeviceSpec*> devices = devices_of(capability);
  // "" for the CPU, whose roof is not known.
  const std::string first = devices.empty() ? "" : std::string(devices.front()->name);
  picture.title = "Roofline";
  picture.roofs_from = "peaks: cited";
  bool products = false, predicted = false;
  for (const Row& row : report.rows) {
    if (row.broken || !row.refusal.empty()) continue;
    RooflinePoint point;
    point.name = concat(row.operation, ' ', row.problem, ' ', row.dtype,
                        row.pass == "forward" ? "" : concat(", ", row.pass),
                        row.kernel.empty() ? "" : concat(", ", row.kernel));
    if (row.min_bytes > 0) point.operations_per_byte = row.flops / row.min_bytes;
    double us = row.number("us", Provenance::measured);
    point.provenance = Provenance::measured;
    if (us == 0) {
      us = row.number(first + "_model_us", Provenance::predicted);
      point.provenance = Provenance::predicted;
      predicted = predicted || us > 0;
    }
    if (us > 0) point.operations_per_second = row.flops / us * 1e6;
    products = products || row.operation == "matmul" || row.operation == "linear" ||
               row.operation == "conv2d";
    picture.points.push_back(std::move(point));
  }
  for (const DeviceSpec* d : devices) {
    if (products)
      picture.roofs.push_back({concat(d->name, " fp16/bf16"), d->rate(evidence::Arithmetic::bf16),
                               d->memory_bandwidth});
    picture.roofs.push_back(
        {concat(d->name, " fp32"), d->rate(evidence::Arithmetic::fp32), d->memory_bandwidth});
  }
  if (predicted)
    picture.caption.push_back(concat("predicted by the cycle model for an ", devices.front()->title,
                                     "; nothing was measured"));
  picture.caption.emplace_back(
      "operations and least traffic are modelled: each input read once, each output written once");
  return picture;
}

}  // namespace roundoff::bench

#include "bench/predict.h"

#include "bench/chosen.h"
#include "kernels/gemm/problem.h"

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

}  // namespace

evidence::Arithmetic arithmetic_of(const Problem& problem) {
  using evidence::Arithmetic;
  if (problem.dtype == DType::fp64) return Arithmetic::fp64;
  if (!problem.is_product() || problem.dtype == DType::fp32) return Arithmetic::fp32;
  return problem.dtype == DType::fp16 ? Arithmetic::fp16 : Arithmetic::bf16;
}

evidence::ProductShape product_shape(const Problem& p) {
  ProductShape s;
  s.arithmetic = arithmetic_of(p);
  s.operand_bytes = static_cast<int>(size_of(p.dtype));
  s.output_bytes = static_cast<int>(size_of(p.out_dtype));
  const PassProduct z = pass_product(p);
  s.m = z.m, s.n = z.n, s.k = z.k;
  s.batch = z.batch;
  if (p.conv) s.least_bytes = p.min_bytes();
  return s;
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

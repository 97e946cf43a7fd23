#include "verify/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "verify/difference.h"

namespace roundoff {

namespace {

constexpr std::string_view kName = "gradcheck";

std::vector<Tensor> make_inputs(Context& context, std::span<const GradcheckInput> inputs,
                                bool leaves) {
  std::vector<Tensor> tensors;
  for (const GradcheckInput& input : inputs) {
    Tensor t = Tensor::from(context.allocator, input.values, input.shape, DType::fp64);
    tensors.push_back(leaves ? make_leaf(context.allocator, std::move(t)) : std::move(t));
  }
  return tensors;
}

void configure(Context& context, const GradcheckOptions& options) {
  context.accumulator = Accumulator::fp64;
  if (options.configure) options.configure(context);
}

// Away from 0, so that no element of y goes unseen.
std::vector<double> random_weights(std::int64_t n, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<double> weights;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t bits = generator();
    const double size = 0.5 + static_cast<double>(bits >> 11) * 0x1p-53;
    weights.push_back((bits & 1) != 0 ? -size : size);
  }
  return weights;
}

}  // namespace

GradcheckReport gradcheck(const TensorFunction& f, std::span<const GradcheckInput> inputs,
                          const GradcheckOptions& options) {
  Context context;
  configure(context, options);
  const std::vector<Tensor> leaves = make_inputs(context, inputs, true);
  const Tensor y = f(context, leaves);
  ROUNDOFF_CHECK(y.defined() && y.dtype() == DType::fp64, kName, "the function gave ",
                 y.defined() ? name(y.dtype()) : "nothing", ", fp64 expected");
  const std::vector<double> weights = random_weights(y.numel(), options.seed);
  context.tape.backward(context, y,
                        Tensor::from(context.allocator, weights, y.shape(), DType::fp64));

  Context plain;
  configure(plain, options);
  const NoGrad no_grad(plain);
  std::vector<Tensor> moved = make_inputs(plain, inputs, false);
  const auto scalar = [&] {
    const std::vector<double> values = f(plain, moved).to_vector();
    ROUNDOFF_CHECK(values.size() == weights.size(), kName, "the function gave ", values.size(),
                   " values, then ", weights.size());
    long double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      sum += static_cast<long double>(weights[i]) * values[i];
    const auto result = static_cast<double>(sum);
    ROUNDOFF_CHECK(std::isfinite(result), kName, "the function gave ", result);
    return result;
  };

  GradcheckReport report;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const Leaf& leaf = *leaves[k].leaf();
    const std::vector<double> gradient =
        leaf.has_grad ? leaf.grad.to_vector() : std::vector<double>(inputs[k].values.size());
    double largest = 0;
    double tolerance = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      double& element = moved[k].data<double>()[i];
      const double x = element;
      const auto along = [&](double value) {
        element = value;
        const double result = scalar();
        element = x;
        return result;
      };
      const Difference d = best_difference(along, x, gradient[i]);
      const double ratio = d.ratio(gradient[i]);
      ++report.checked;
      report.kinks += d.kink ? 1 : 0;
      largest = std::max(largest, std::abs(gradient[i]));
      tolerance = std::max(tolerance, d.tolerance);
      if (ratio >= report.worst_ratio) {
        report.worst_ratio = ratio;
        report.worst = concat("input ", k, ", element ", i, ": gradient ", gradient[i],
                              ", difference ", d.value, " +- ", d.tolerance);
      }
    }
    if (largest > 0) report.blind_below = std::max(report.blind_below, tolerance / largest);
  }
  return report;
}

}  // namespace roundoff

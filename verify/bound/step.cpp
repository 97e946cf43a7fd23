#include "verify/bound/step.h"

#include <cmath>

#include "verify/bound/tracked.h"

namespace roundoff::bound {

using oracle::In;
using oracle::Values;

UnscaleClip unscale_clip(const oracle::UnscaleClipParams& p, std::span<const Values> grads,
                         const Arithmetic& a, const Format& norm_accumulator) {
  auto exact = oracle::unscale_clip(p, grads);
  const Tracker t(a);
  const Tracked inverse = t.constant(1 / static_cast<long double>(p.scale));
  std::int64_t elements = 0;
  for (const Values& g : grads) elements += static_cast<std::int64_t>(g.size());
  Arithmetic norm_arithmetic = a;
  norm_arithmetic.accumulator = norm_accumulator;
  norm_arithmetic.output = norm_accumulator;
  // Unscaling rounds the factor and the product.
  const bool power_of_two = inverse.exact();
  const double relative =
      compounded((power_of_two ? 0 : 2 * a.u()) + sum_factor(norm_arithmetic, elements, 3) / 2);
  // Unscaled gradients that underflow move the norm by the norm of what they lose, at most.
  const double lost =
      power_of_two && p.scale <= 1 ? 0.0 : std::sqrt(static_cast<double>(elements)) * a.underflow();
  const Tracked norm = t.with_error(exact.norm, exact.norm * relative + lost);

  UnscaleClip out;
  const Tracked norms[] = {norm};
  out.norm = bound_of({exact.norm}, norms, norm_arithmetic, BoundKind::derived);
  Tracked clip = t.exact(exact.clip);
  const bool near_limit = std::abs(exact.norm - p.max_norm) <= exact.norm * relative + lost;
  if (!exact.found_inf && (exact.norm > p.max_norm || near_limit) && exact.norm > 0)
    clip = t.constant(p.max_norm) / norm;
  const Tracked clips[] = {clip};
  out.clip = bound_of({exact.clip}, clips, a, BoundKind::derived);
  for (std::size_t k = 0; k < grads.size(); ++k) {
    std::vector<Tracked> results;
    for (const double g : grads[k]) results.push_back(t.exact(g) * inverse * clip);
    out.grads.push_back(bound_of(std::move(exact.grads[k]), results, a, BoundKind::derived));
  }
  return out;
}

Sgd sgd_step(const oracle::SgdParams& p, In grad, In w, In buffer, const Arithmetic& a) {
  Values exact_w(w.begin(), w.end());
  Values exact_buffer(buffer.begin(), buffer.end());
  oracle::sgd_step(p, grad, exact_w, exact_buffer);
  const Tracker t(a);
  std::vector<Tracked> new_w, new_buffer;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const Tracked g = t.exact(grad[i]) + t.constant(p.weight_decay) * t.exact(w[i]);
    Tracked update = g;
    if (p.momentum != 0) {
      const Tracked momentum = t.constant(p.momentum);
      new_buffer.push_back(momentum * t.exact(buffer[i]) + g);
      update = p.nesterov ? g + momentum * new_buffer.back() : new_buffer.back();
    }
    new_w.push_back(t.exact(w[i]) - t.constant(p.lr) * update);
  }
  if (new_buffer.empty())
    for (const double b : buffer) new_buffer.push_back(t.exact(b));
  return {bound_of(std::move(exact_w), new_w, a, BoundKind::derived),
          bound_of(std::move(exact_buffer), new_buffer, a, BoundKind::derived)};
}

Adam adam_step(const oracle::AdamParams& p, std::int64_t step, In grad, In w, In m, In v,
               const Arithmetic& a) {
  Values exact_w(w.begin(), w.end());
  Values exact_m(m.begin(), m.end());
  Values exact_v(v.begin(), v.end());
  oracle::adam_step(p, step, grad, exact_w, exact_m, exact_v);
  const Tracker t(a);
  using Real = long double;
  const Real bias1 = 1 - std::pow(static_cast<Real>(p.beta1), static_cast<Real>(step));
  const Real bias2 = 1 - std::pow(static_cast<Real>(p.beta2), static_cast<Real>(step));
  const Tracked beta1 = t.constant(p.beta1);
  const Tracked beta2 = t.constant(p.beta2);
  const Tracked rest1 = t.constant(1 - static_cast<Real>(p.beta1));
  const Tracked rest2 = t.constant(1 - static_cast<Real>(p.beta2));
  const Tracked step_size = t.constant(p.lr / bias1);
  const Tracked correction = t.constant(std::sqrt(bias2));
  std::vector<Tracked> new_w, new_m, new_v;
  for (std::size_t i = 0; i < w.size(); ++i) {
    Tracked g = t.exact(grad[i]);
    Tracked weight = t.exact(w[i]);
    if (p.decoupled_decay)
      weight = t.constant(1 - static_cast<Real>(p.lr) * p.weight_decay) * weight;
    else
      g = g + t.constant(p.weight_decay) * weight;
    new_m.push_back(beta1 * t.exact(m[i]) + rest1 * g);
    new_v.push_back(beta2 * t.exact(v[i]) + rest2 * g * g);
    const Tracked denominator = sqrt(new_v.back()) / correction + t.constant(p.eps);
    new_w.push_back(weight - step_size * new_m.back() / denominator);
  }
  return {bound_of(std::move(exact_w), new_w, a, BoundKind::derived),
          bound_of(std::move(exact_m), new_m, a, BoundKind::derived),
          bound_of(std::move(exact_v), new_v, a, BoundKind::derived)};
}

}  // namespace roundoff::bound

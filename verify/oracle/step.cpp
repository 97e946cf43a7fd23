#include "verify/oracle/step.h"

#include <cmath>

namespace roundoff::oracle {

using Real = long double;

UnscaleClip unscale_clip(const UnscaleClipParams& p, std::span<const Values> grads) {
  ROUNDOFF_CHECK(p.scale > 0, "unscale_clip oracle", "scale ", p.scale, ", > 0 expected");
  ROUNDOFF_CHECK(p.max_norm >= 0, "unscale_clip oracle", "max_norm ", p.max_norm,
                 ", >= 0 expected");
  UnscaleClip out;
  Real squares = 0;
  for (const Values& grad : grads)
    for (const double g : grad) {
      Real unscaled = static_cast<Real>(g) / p.scale;
      if (!(std::abs(unscaled) < p.overflow)) {
        out.found_inf = true;
        if (!std::isnan(unscaled)) unscaled = INFINITY;
      }
      squares += unscaled * unscaled;
    }
  const Real norm = std::sqrt(squares);
  out.norm = static_cast<double>(norm);
  const Real clip = !out.found_inf && norm > p.max_norm ? p.max_norm / norm : 1;
  out.clip = static_cast<double>(clip);
  for (const Values& grad : grads) {
    Values& result = out.grads.emplace_back();
    for (const double g : grad)
      result.push_back(static_cast<double>(static_cast<Real>(g) / p.scale * clip));
  }
  return out;
}

void sgd_step(const SgdParams& p, In grad, Values& w, Values& buffer) {
  check_size("sgd oracle", "grad", grad, static_cast<std::int64_t>(w.size()));
  if (p.momentum != 0)
    check_size("sgd oracle", "buffer", buffer, static_cast<std::int64_t>(w.size()));
  for (std::size_t i = 0; i < w.size(); ++i) {
    const Real g = grad[i] + static_cast<Real>(p.weight_decay) * w[i];
    Real update = g;
    if (p.momentum != 0) {
      const Real b = static_cast<Real>(p.momentum) * buffer[i] + g;
      buffer[i] = static_cast<double>(b);
      update = p.nesterov ? g + p.momentum * b : b;
    }
    w[i] = static_cast<double>(w[i] - p.lr * update);
  }
}

void adam_step(const AdamParams& p, std::int64_t step, In grad, Values& w, Values& m, Values& v) {
  ROUNDOFF_CHECK(step >= 1, "adam oracle", "step ", step, ", >= 1 expected");
  const auto size = static_cast<std::int64_t>(w.size());
  check_size("adam oracle", "grad", grad, size);
  check_size("adam oracle", "m", m, size);
  check_size("adam oracle", "v", v, size);
  const Real beta1 = p.beta1;
  const Real beta2 = p.beta2;
  const Real bias1 = 1 - std::pow(beta1, static_cast<Real>(step));
  const Real bias2 = 1 - std::pow(beta2, static_cast<Real>(step));
  for (std::size_t i = 0; i < w.size(); ++i) {
    Real weight = w[i];
    Real g = grad[i];
    if (p.decoupled_decay)
      weight -= static_cast<Real>(p.lr) * p.weight_decay * weight;
    else
      g += p.weight_decay * weight;
    const Real first = beta1 * m[i] + (1 - beta1) * g;
    const Real second = beta2 * v[i] + (1 - beta2) * g * g;
    m[i] = static_cast<double>(first);
    v[i] = static_cast<double>(second);
    w[i] =
        static_cast<double>(weight - p.lr * (first / bias1) / (std::sqrt(second / bias2) + p.eps));
  }
}

}  // namespace roundoff::oracle

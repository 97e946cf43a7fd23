#include "verify/bound/tracked.h"

namespace roundoff {

Bound bound_of(std::vector<double> reference, std::span<const Tracked> results, const Arithmetic& a,
               BoundKind kind) {
  ROUNDOFF_CHECK(reference.size() == results.size(), "bound", results.size(), " results for ",
                 reference.size(), " references");
  // A bound that used lambda in its sums is no better than that.
  if (a.lambda > 0 && kind == BoundKind::derived) kind = BoundKind::probabilistic;
  Bound bound{std::move(reference), std::vector<double>(results.size()), kind, a.lambda};
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!std::isfinite(bound.reference[i])) continue;
    const double tolerance = rounded_tolerance(results[i].value, results[i].error, a.output);
    // Errors so large that their own formula breaks down (inf times 0) promise nothing.
    bound.tolerance[i] = std::isnan(tolerance) ? INFINITY : tolerance;
  }
  return bound;
}

}  // namespace roundoff

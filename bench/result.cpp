#include "bench/result.h"

#include "kernels/base/check.h"

namespace roundoff::bench {

const Metric* Row::find(std::string_view name, Provenance provenance) const {
  for (const Metric& m : metrics)
    if (m.name == name && m.provenance == provenance) return &m;
  return nullptr;
}

double Row::number(std::string_view name, Provenance provenance, double otherwise) const {
  const Metric* m = find(name, provenance);
  if (m == nullptr) return otherwise;
  if (const auto* real = std::get_if<double>(&m->value)) return *real;
  if (const auto* whole = std::get_if<std::int64_t>(&m->value)) return static_cast<double>(*whole);
  return otherwise;
}

void refuse_above_peak(const Row& row, double flops_per_second, double peak_flops,
                       double bytes_per_second, double peak_bytes) {
  const auto refuse = [&](double value, double peak, const char* unit) {
    ROUNDOFF_CHECK(peak <= 0 || value <= peak, "bench", row.operation, ' ', row.problem, ", ",
                   row.kernel, ": ", value, ' ', unit, " is above the device's peak of ", peak, ' ',
                   unit, "; the measurement is wrong and is not reported");
  };
  refuse(flops_per_second, peak_flops, "FLOP/s");
  refuse(bytes_per_second, peak_bytes, "B/s");
}

}  // namespace roundoff::bench

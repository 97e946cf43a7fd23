#include "bench/run.h"

namespace roundoff::bench {

std::vector<ProductKernel> RunSettings::kernels(const Problem& problem) const {
  if (!problem.is_product()) return {ProductKernel::automatic};
  if (kernel) return {*kernel};
  if (!rungs) return {ProductKernel::automatic};
  std::vector<ProductKernel> all;
  for (const ProductKernel k : kProductKernels)
    if (k != ProductKernel::automatic) all.push_back(k);
  return all;
}

void RunSettings::tell(const Problem& problem, ProductKernel chosen) const {
  if (!progress) return;
  std::string text = concat(problem.operation(), ' ', problem.text(), ' ', name(problem.dtype));
  if (chosen != ProductKernel::automatic) text += concat(", ", name(chosen));
  progress(text);
}

std::string reason_of(const std::string& error) {
  constexpr std::string_view kBefore = "does not take this product: ";
  const std::size_t at = error.find(kBefore);
  return at == std::string::npos ? error : error.substr(at + kBefore.size());
}

Problem with_kernel(const Problem& problem, ProductKernel kernel) {
  Problem p = problem;
  if (kernel != ProductKernel::automatic) p.c.parameters["kernel"] = name(kernel);
  return p;
}

Row begin_row(const Problem& p, ProductKernel kernel, std::optional<ProductKernel> chosen) {
  Row row;
  row.operation = p.operation();
  row.pass = name(p.pass);
  row.problem = p.text();
  row.dtype = name(p.dtype);
  row.out_dtype = name(p.out_dtype);
  row.kernel = p.is_product() ? std::string(name(kernel)) : std::string();
  if (chosen && *chosen != kernel) row.kernel += concat(" (", name(*chosen), ")");
  row.flops = p.flops();
  row.min_bytes = p.min_bytes();
  return row;
}

}  // namespace roundoff::bench

#include "bench/gemm.h"

#include <memory>

#include "engine/data/random.h"
#include "kernels/base/convert.h"
#include "kernels/gemm/gemm.h"

namespace roundoff::bench {

namespace {

struct Operands {
  DType dtype;
  std::int64_t n;
  std::vector<std::byte> a, b, c;
  Scratch scratch;

  Operands(DType type, std::int64_t size) : dtype(type), n(size) {
    const auto bytes = static_cast<std::size_t>(n * n) * size_of(dtype);
    for (auto* matrix : {&a, &b, &c}) matrix->resize(bytes);
    RandomStream random(1, RandomUse::glyphs, 0);
    std::vector<float> values(static_cast<std::size_t>(n * n));
    for (auto* matrix : {&a, &b}) {
      for (float& value : values) value = static_cast<float>(random.normal());
      narrow(values.data(), n * n, view(*matrix), 0);
    }
  }
  View view(std::vector<std::byte>& matrix) const { return {matrix.data(), dtype, {n, n}}; }
};

}  // namespace

std::vector<Contender> gemm_contenders(std::int64_t n) {
  std::vector<Contender> contenders;
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
    const auto o = std::make_shared<Operands>(dtype, n);
    contenders.push_back({std::string(name(dtype)), [o] {
                            gemm(Ref{}, {.m = o->n, .n = o->n, .k = o->n}, o->view(o->a),
                                 o->view(o->b), ConstView::absent(), o->view(o->c), o->scratch);
                          }});
    if (dtype == DType::fp32) continue;
    const auto product = dtype == DType::fp16 ? eigen_half_product : eigen_bfloat16_product;
    contenders.push_back({concat(name(dtype), " (Eigen)"),
                          [o, product] { product(o->a.data(), o->b.data(), o->c.data(), o->n); }});
  }
  return contenders;
}

}  // namespace roundoff::bench

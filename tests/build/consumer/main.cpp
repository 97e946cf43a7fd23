// Uses what an installed Roundoff links: its operations and their products, and the digest.
#include <cstdio>
#include <vector>

#include "engine/io/file.h"
#include "kernels/base/convert.h"
#include "ops/matmul.h"

namespace {

int wrong = 0;
void expect(bool holds, const char* what) {
  std::printf("%s: %s\n", what, holds ? "right" : "WRONG");
  wrong += holds ? 0 : 1;
}

}  // namespace

int main() {
  using namespace roundoff;
  const std::vector<float> x = {1.0F + 0x1p-11F, 65520.0F};
  std::vector<Half> y(x.size());
  const Shape shape{2};
  convert(Ref{}, ConstView{x.data(), DType::fp32, shape}, View{y.data(), DType::fp16, shape});
  expect(y[0].bits == 0x3C00 && y[1].bits == 0x7C00, "conversion to fp16");

  // 4096 ones: an fp16 sum would stop at 2048.
  Context context;
  const std::vector<double> ones(4096, 1.0);
  const Tensor a =
      make_leaf(context.allocator, Tensor::from(context.allocator, ones, {1, 4096}, DType::fp16));
  const Tensor b = Tensor::from(context.allocator, ones, {4096, 1}, DType::fp16);
  const Tensor product = matmul(context, a, b);
  expect(product.to_vector() == std::vector<double>{4096}, "product in fp16, summed in fp32");
  context.tape.backward(
      context, product,
      Tensor::from(context.allocator, std::vector<double>{3.0}, {1, 1}, product.dtype()));
  expect(a.leaf()->grad.to_vector() == std::vector<double>(4096, 3.0), "its gradient");

  Sha256 digest;
  digest.update("");
  expect(digest.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
         "SHA-256 of nothing");
  return wrong == 0 ? 0 : 1;
}

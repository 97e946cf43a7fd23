#include <cstdio>
#include <vector>

#include "kernels/base/convert.h"
#include "kernels/base/dtype.h"

int main() {
  using namespace roundoff;
  const std::vector<float> x = {1.0F + 0x1p-11F, 65520.0F};
  std::vector<Half> y(x.size());
  const Shape shape{2};
  convert(Ref{}, ConstView{x.data(), DType::fp32, shape}, View{y.data(), DType::fp16, shape});
  std::printf("%04x %04x\n", y[0].bits, y[1].bits);
  return y[0].bits == 0x3C00 && y[1].bits == 0x7C00 ? 0 : 1;
}

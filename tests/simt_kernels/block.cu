#include "tests/simt_kernels/block.h"

#include "kernels/base/check.h"
#include "kernels/reduce/block.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  template <int kWidth>
  __global__ void row_sums(const float* x, float* sum, float* max, float* min, float* again) {
    ROUNDOFF_SHARED(float, partial, [reduce::shared_size(1024)]);
    reduce::Shared<float> shared(partial);
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    sum[i] = reduce::row<kWidth>(x[i], reduce::Sum{}, shared);
    max[i] = reduce::row<kWidth>(x[i], reduce::Max{}, shared);
    min[i] = reduce::row<kWidth>(x[i], reduce::Min{}, shared);
    const unsigned k = i % kWidth;
    again[i] = reduce::row<kWidth>(x[i - k + (kWidth - 1 - k)], reduce::Sum{}, shared);
  }

  template <int kWidth>
  __global__ void row_pairs(const double* x, std::int64_t* largest, std::int64_t* smallest,
                            double* sum, double* squares) {
    ROUNDOFF_SHARED(reduce::Indexed<double>, partial, [reduce::shared_size(1024)]);
    using Two = reduce::Values<double, 2>;
    ROUNDOFF_SHARED(Two, partial_sums, [reduce::shared_size(1024)]);
    reduce::Shared<reduce::Indexed<double>> shared(partial);
    reduce::Shared<Two> shared_sums(partial_sums);
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const reduce::Indexed<double> mine{x[i], static_cast<std::int64_t>(i % kWidth)};
    largest[i] = reduce::row<kWidth>(mine, reduce::FirstMax{}, shared).index;
    smallest[i] = reduce::row<kWidth>(mine, reduce::FirstMin{}, shared).index;
    const Two both = reduce::row<kWidth>(Two{{x[i], x[i] * x[i]}}, reduce::Sum{}, shared_sums);
    sum[i] = both.at[0];
    squares[i] = both.at[1];
  }

  // f.template operator()<width>()
  template <class F>
  void with_width(int width, F f) {
    switch (width) {
      case 1:
        return f.template operator()<1>();
      case 2:
        return f.template operator()<2>();
      case 8:
        return f.template operator()<8>();
      case 32:
        return f.template operator()<32>();
      case 64:
        return f.template operator()<64>();
      case 128:
        return f.template operator()<128>();
      case 256:
        return f.template operator()<256>();
      case 1024:
        return f.template operator()<1024>();
      default:
        fail("rows", "width ", width);
    }
  }
}  // namespace

template <DeviceTarget T>
void launch_row_sums(T target, int width, unsigned rows, const float* x, float* sum, float* max,
                     float* min, float* again) {
  const unsigned threads = width > 256 ? static_cast<unsigned>(width) : 256;
  const unsigned blocks = rows * static_cast<unsigned>(width) / threads;
  with_width(width, [&]<int kWidth>() {
    launch(target, {.name = "row_sums", .grid = {blocks}, .block = {threads}}, row_sums<kWidth>, x,
           sum, max, min, again);
  });
}

template <DeviceTarget T>
void launch_row_pairs(T target, int width, unsigned rows, const double* x, std::int64_t* largest,
                      std::int64_t* smallest, double* sum, double* squares) {
  const unsigned threads = width > 256 ? static_cast<unsigned>(width) : 256;
  const unsigned blocks = rows * static_cast<unsigned>(width) / threads;
  with_width(width, [&]<int kWidth>() {
    launch(target, {.name = "row_pairs", .grid = {blocks}, .block = {threads}}, row_pairs<kWidth>,
           x, largest, smallest, sum, squares);
  });
}

template void launch_row_sums(Target, int, unsigned, const float*, float*, float*, float*, float*);
template void launch_row_pairs(Target, int, unsigned, const double*, std::int64_t*, std::int64_t*,
                               double*, double*);

}  // namespace roundoff

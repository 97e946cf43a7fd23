#include "verify/oracle/pool2d.h"

#include <cmath>

namespace roundoff::oracle {

namespace {

void check(const Pool2dParams& p) {
  constexpr std::string_view kName = "pool2d oracle";
  ROUNDOFF_CHECK(p.n >= 0 && p.h >= 0 && p.w >= 0 && p.c >= 0, kName, "negative extent");
  ROUNDOFF_CHECK(p.kernel_h > 0 && p.kernel_w > 0 && p.stride_h > 0 && p.stride_w > 0, kName,
                 "kernel and stride are at least 1");
  ROUNDOFF_CHECK(
      p.pad_h >= 0 && p.pad_w >= 0 && 2 * p.pad_h <= p.kernel_h && 2 * p.pad_w <= p.kernel_w, kName,
      "padding is at most half the kernel");
  ROUNDOFF_CHECK(p.h + 2 * p.pad_h >= p.kernel_h && p.w + 2 * p.pad_w >= p.kernel_w, kName,
                 "kernel larger than the padded input");
}

// Calls window(iy, inside) for every output, with the indices of the inputs inside its window.
template <class F>
void for_each_window(const Pool2dParams& p, F window) {
  std::vector<std::size_t> inside;
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t y = 0; y < p.p(); ++y)
      for (std::int64_t x = 0; x < p.q(); ++x)
        for (std::int64_t c = 0; c < p.c; ++c) {
          inside.clear();
          for (std::int64_t i = 0; i < p.kernel_h; ++i)
            for (std::int64_t j = 0; j < p.kernel_w; ++j) {
              const std::int64_t in_y = y * p.stride_h + i - p.pad_h;
              const std::int64_t in_x = x * p.stride_w + j - p.pad_w;
              if (in_y < 0 || in_y >= p.h || in_x < 0 || in_x >= p.w) continue;
              inside.push_back(at(((n * p.h + in_y) * p.w + in_x) * p.c + c));
            }
          window(at(((n * p.p() + y) * p.q() + x) * p.c + c), inside);
        }
}

std::size_t arg_max(In x, const std::vector<std::size_t>& indices) {
  std::size_t best = indices.front();
  for (const std::size_t i : indices) {
    if (std::isnan(x[best])) break;
    if (std::isnan(x[i]) || x[i] > x[best]) best = i;
  }
  return best;
}

long double divisor(const Pool2dParams& p, const std::vector<std::size_t>& inside) {
  return static_cast<long double>(p.count_include_pad ? p.kernel_h * p.kernel_w
                                                      : static_cast<std::int64_t>(inside.size()));
}

}  // namespace

Values max_pool2d(const Pool2dParams& p, In x) {
  check(p);
  check_size("max_pool2d oracle", "x", x, p.x_size());
  Values y(at(p.y_size()));
  for_each_window(p, [&](std::size_t iy, const auto& inside) { y[iy] = x[arg_max(x, inside)]; });
  return y;
}

Values max_pool2d_backward(const Pool2dParams& p, In x, In dy) {
  check(p);
  check_size("max_pool2d oracle", "x", x, p.x_size());
  check_size("max_pool2d oracle", "dy", dy, p.y_size());
  Sums dx = zeros(p.x_size());
  for_each_window(p, [&](std::size_t iy, const auto& inside) { dx[arg_max(x, inside)] += dy[iy]; });
  return rounded(dx);
}

Values avg_pool2d(const Pool2dParams& p, In x) {
  check(p);
  check_size("avg_pool2d oracle", "x", x, p.x_size());
  Sums y = zeros(p.y_size());
  for_each_window(p, [&](std::size_t iy, const auto& inside) {
    for (const std::size_t i : inside) y[iy] += x[i];
    y[iy] /= divisor(p, inside);
  });
  return rounded(y);
}

Values avg_pool2d_backward(const Pool2dParams& p, In dy) {
  check(p);
  check_size("avg_pool2d oracle", "dy", dy, p.y_size());
  Sums dx = zeros(p.x_size());
  for_each_window(p, [&](std::size_t iy, const auto& inside) {
    for (const std::size_t i : inside) dx[i] += dy[iy] / divisor(p, inside);
  });
  return rounded(dx);
}

}  // namespace roundoff::oracle

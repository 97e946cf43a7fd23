#include "verify/oracle/conv2d.h"

namespace roundoff::oracle {

namespace {

// Calls product(ix, iw, iy) for every product X[ix] W[iw] that is a term of Y[iy]; products with
// the padding's zeros are left out. Forward, dgrad and wgrad are this one list, read three ways.
template <class F>
void for_each_product(const Conv2dParams& p, F product) {
  const std::int64_t c_group = p.c / p.groups;
  const std::int64_t k_group = p.k / p.groups;
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t y = 0; y < p.p(); ++y)
      for (std::int64_t x = 0; x < p.q(); ++x)
        for (std::int64_t k = 0; k < p.k; ++k)
          for (std::int64_t r = 0; r < p.r; ++r)
            for (std::int64_t s = 0; s < p.s; ++s) {
              const std::int64_t in_y = y * p.stride_h + r * p.dilation_h - p.pad_h;
              const std::int64_t in_x = x * p.stride_w + s * p.dilation_w - p.pad_w;
              if (in_y < 0 || in_y >= p.h || in_x < 0 || in_x >= p.w) continue;
              for (std::int64_t c = 0; c < c_group; ++c) {
                const std::int64_t channel = k / k_group * c_group + c;
                product(at(((n * p.h + in_y) * p.w + in_x) * p.c + channel),
                        at(((k * p.r + r) * p.s + s) * c_group + c),
                        at(((n * p.p() + y) * p.q() + x) * p.k + k));
              }
            }
}

void check(const Conv2dParams& p) {
  constexpr std::string_view kName = "conv2d oracle";
  ROUNDOFF_CHECK(p.n >= 0 && p.h >= 0 && p.w >= 0 && p.c >= 0 && p.k >= 0 && p.r > 0 && p.s > 0,
                 kName, "impossible extent");
  ROUNDOFF_CHECK(p.stride_h > 0 && p.stride_w > 0 && p.dilation_h > 0 && p.dilation_w > 0, kName,
                 "stride and dilation are at least 1");
  ROUNDOFF_CHECK(p.pad_h >= 0 && p.pad_w >= 0, kName, "negative padding");
  ROUNDOFF_CHECK(p.groups > 0 && p.c % p.groups == 0 && p.k % p.groups == 0, kName, p.groups,
                 " groups do not divide ", p.c, " and ", p.k, " channels");
  ROUNDOFF_CHECK(p.h + 2 * p.pad_h >= p.dilation_h * (p.r - 1) + 1 &&
                     p.w + 2 * p.pad_w >= p.dilation_w * (p.s - 1) + 1,
                 kName, "kernel larger than the padded input");
}

}  // namespace

Values conv2d(const Conv2dParams& p, In x, In w, In bias) {
  check(p);
  check_size("conv2d oracle", "x", x, p.x_size());
  check_size("conv2d oracle", "w", w, p.w_size());
  if (!bias.empty()) check_size("conv2d oracle", "bias", bias, p.k);
  Sums y = zeros(p.y_size());
  for_each_product(p, [&](std::size_t ix, std::size_t iw, std::size_t iy) {
    y[iy] += static_cast<long double>(x[ix]) * w[iw];
  });
  if (!bias.empty())
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % at(p.k)];
  return rounded(y);
}

Values conv2d_dgrad(const Conv2dParams& p, In w, In dy) {
  check(p);
  check_size("conv2d oracle", "w", w, p.w_size());
  check_size("conv2d oracle", "dy", dy, p.y_size());
  Sums dx = zeros(p.x_size());
  for_each_product(p, [&](std::size_t ix, std::size_t iw, std::size_t iy) {
    dx[ix] += static_cast<long double>(dy[iy]) * w[iw];
  });
  return rounded(dx);
}

Values conv2d_wgrad(const Conv2dParams& p, In x, In dy) {
  check(p);
  check_size("conv2d oracle", "x", x, p.x_size());
  check_size("conv2d oracle", "dy", dy, p.y_size());
  Sums dw = zeros(p.w_size());
  for_each_product(p, [&](std::size_t ix, std::size_t iw, std::size_t iy) {
    dw[iw] += static_cast<long double>(dy[iy]) * x[ix];
  });
  return rounded(dw);
}

Values conv2d_bias_grad(const Conv2dParams& p, In dy) {
  check(p);
  check_size("conv2d oracle", "dy", dy, p.y_size());
  Sums db = zeros(p.k);
  for (std::size_t i = 0; i < dy.size(); ++i) db[i % at(p.k)] += dy[i];
  return rounded(db);
}

}  // namespace roundoff::oracle

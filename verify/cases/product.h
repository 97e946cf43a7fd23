// Sums of products: matrix products, linear layers, convolutions.
#pragma once

#include <algorithm>

#include "verify/case.h"

namespace roundoff::cases {

struct MatmulCase {
  std::int64_t m = 1, n = 1, k = 1;
  bool trans_a = false, trans_b = false;
  Shape lead_a{}, lead_b{}, lead{};  // leading axes of a, b and the result
  // Added: absent, a row [n], or a matrix [m, n].
  enum class C : unsigned char { none, row, matrix } c = C::none;
  std::string alpha = "1", beta = "1";
};

inline Shape joined(const Shape& lead, std::int64_t rows, std::int64_t columns) {
  std::vector<std::int64_t> extents(lead.extents().begin(), lead.extents().end());
  extents.insert(extents.end(), {rows, columns});
  return Shape(std::span<const std::int64_t>(extents));
}

inline Case matmul(const MatmulCase& o) {
  Case c{"matmul", {}, {}, joined(o.lead, o.m, o.n)};
  if (o.trans_a) c.parameters["trans_a"] = "true";
  if (o.trans_b) c.parameters["trans_b"] = "true";
  if (o.alpha != "1") c.parameters["alpha"] = o.alpha;
  c.inputs.push_back({"a", o.trans_a ? joined(o.lead_a, o.k, o.m) : joined(o.lead_a, o.m, o.k)});
  c.inputs.push_back({"b", o.trans_b ? joined(o.lead_b, o.n, o.k) : joined(o.lead_b, o.k, o.n)});
  if (o.c != MatmulCase::C::none) {
    c.inputs.push_back({"c", o.c == MatmulCase::C::row ? Shape{o.n} : Shape{o.m, o.n}});
    if (o.beta != "1") c.parameters["beta"] = o.beta;
  }
  const std::int64_t batch = o.lead.numel();
  // Gradients sum over m or n, over the batch where an operand is shared, and c's over all rows;
  // alpha and beta are whole or halves.
  c.terms = 4 * (std::max({o.m, o.n, o.k, std::int64_t{1}}) * std::max<std::int64_t>(batch, 1) + 1);
  c.flops = 2.0 * static_cast<double>(batch * o.m * o.n) * static_cast<double>(o.k);
  return c;
}

inline Case linear(const Shape& lead, std::int64_t in, std::int64_t out, bool bias) {
  std::vector<std::int64_t> x(lead.extents().begin(), lead.extents().end()), y = x;
  x.push_back(in);
  y.push_back(out);
  Case c{"linear", {}, {}, Shape(std::span<const std::int64_t>(y))};
  c.inputs = {{"x", Shape(std::span<const std::int64_t>(x))}, {"w", {out, in}}};
  if (bias) c.inputs.push_back({"b", {out}});
  c.terms = std::max({in, out, lead.numel(), std::int64_t{1}}) + 1;
  c.flops = 2.0 * static_cast<double>(lead.numel() * in) * static_cast<double>(out);
  return c;
}

struct Conv2dCase {
  std::int64_t n = 1, h = 1, w = 1, c = 1;  // input
  std::int64_t k = 1, r = 1, s = 1;
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = false;

  std::int64_t p() const {
    return (h + 2 * padding[0] - dilation[0] * (r - 1) - 1) / stride[0] + 1;
  }
  std::int64_t q() const {
    return (w + 2 * padding[1] - dilation[1] * (s - 1) - 1) / stride[1] + 1;
  }
};

inline Case conv2d(const Conv2dCase& o) {
  Case c{"conv2d", {}, {}, {o.n, o.p(), o.q(), o.k}};
  const auto pair = [&](const char* name, const std::array<std::int64_t, 2>& v,
                        std::int64_t usual) {
    if (v[0] != usual || v[1] != usual)
      c.parameters[name] = std::to_string(v[0]) + "," + std::to_string(v[1]);
  };
  pair("stride", o.stride, 1);
  pair("padding", o.padding, 0);
  pair("dilation", o.dilation, 1);
  if (o.groups != 1) c.parameters["groups"] = std::to_string(o.groups);
  c.inputs = {{"x", {o.n, o.h, o.w, o.c}}, {"w", {o.k, o.r, o.s, o.c / o.groups}}};
  if (o.bias) c.inputs.push_back({"b", {o.k}});
  const std::int64_t pixels = o.n * o.p() * o.q(), window = o.r * o.s;
  c.terms = std::max({o.c / o.groups * window, o.k / o.groups * window, pixels}) + 1;
  c.flops = 2.0 * static_cast<double>(pixels * o.k) * static_cast<double>(o.c / o.groups * window);
  return c;
}

inline std::vector<Case> products(bool full) {
  using C = MatmulCase::C;
  std::vector<Case> list;
  const std::array<std::int64_t, 3> sizes[] = {{1, 1, 1},    {2, 3, 4},    {17, 23, 31},
                                               {33, 31, 65}, {64, 64, 64}, {1, 105, 107},
                                               {3, 1, 1000}, {65, 129, 33}};
  for (const auto& [m, n, k] : sizes) list.push_back(matmul({m, n, k}));
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) list.push_back(matmul({19, 37, 53, ta, tb}));
  // Lines of whole 16 bytes, which the kernels for sm_90a want, and more rows or columns than one
  // of their tiles.
  list.push_back(matmul({72, 24, 16}));
  list.push_back(matmul({24, 72, 16, true, true}));
  list.push_back(matmul({.m = 17, .n = 33, .k = 31, .c = C::row}));
  list.push_back(matmul(
      {.m = 7, .n = 65, .k = 20, .trans_b = true, .c = C::matrix, .alpha = "0.5", .beta = "2"}));
  list.push_back(matmul({5, 7, 11, false, true, {3}, {3}, {3}}));
  list.push_back(matmul({5, 7, 11, false, false, {2, 1}, {3}, {2, 3}}));
  if (full) {
    const std::array<std::int64_t, 3> more[] = {
        {36, 36, 64}, {128, 128, 32}, {127, 129, 255}, {257, 65, 129}, {1, 1, 4097}, {1, 705, 705},
        {255, 3, 2},  {16, 8, 8},     {256, 128, 64},  {3, 5, 0},      {0, 4, 3},    {31, 1, 513}};
    for (const auto& [m, n, k] : more)
      for (const bool ta : {false, true})
        for (const bool tb : {false, true}) list.push_back(matmul({m, n, k, ta, tb}));
    list.push_back(
        matmul({.m = 33, .n = 17, .k = 5, .c = C::matrix, .alpha = "-1", .beta = "0.5"}));
    list.push_back(matmul({.m = 4, .n = 9, .k = 3, .c = C::row, .alpha = "0", .beta = "2"}));
  }
  list.push_back(linear({1}, 1, 1, false));
  list.push_back(linear({3}, 5, 2, true));
  list.push_back(linear({17}, 65, 33, true));
  list.push_back(linear({2, 5}, 31, 129, false));
  if (full) {
    list.push_back(linear({64}, 784, 128, true));
    list.push_back(linear({255}, 127, 10, true));
    list.push_back(linear({}, 33, 7, true));
    list.push_back(linear({0}, 5, 3, true));
  }
  list.push_back(conv2d({.n = 1, .h = 1, .w = 1, .c = 1, .k = 1}));
  list.push_back(conv2d({.n = 2, .h = 5, .w = 7, .c = 3, .k = 5, .bias = true}));
  list.push_back(conv2d(
      {.n = 2, .h = 9, .w = 7, .c = 3, .k = 17, .r = 3, .s = 3, .padding = {1, 1}, .bias = true}));
  list.push_back(conv2d({.n = 1,
                         .h = 11,
                         .w = 8,
                         .c = 4,
                         .k = 6,
                         .r = 3,
                         .s = 2,
                         .stride = {2, 1},
                         .padding = {1, 2},
                         .dilation = {1, 2},
                         .groups = 2}));
  list.push_back(conv2d(
      {.n = 2, .h = 6, .w = 6, .c = 5, .k = 5, .r = 3, .s = 3, .padding = {1, 1}, .groups = 5}));
  list.push_back(conv2d({.n = 1,
                         .h = 8,
                         .w = 9,
                         .c = 33,
                         .k = 31,
                         .r = 3,
                         .s = 3,
                         .stride = {2, 2},
                         .padding = {1, 1}}));
  list.push_back(conv2d(
      {.n = 1, .h = 3, .w = 5, .c = 16, .k = 24, .r = 3, .s = 3, .padding = {1, 1}, .bias = true}));
  list.push_back(
      conv2d({.n = 1, .h = 3, .w = 3, .c = 64, .k = 16, .r = 3, .s = 3, .padding = {1, 1}}));
  list.push_back(
      conv2d({.n = 1, .h = 3, .w = 3, .c = 2, .k = 3, .r = 5, .s = 5, .padding = {2, 2}}));
  if (full) {
    for (const std::int64_t channels : {1, 8, 16, 17, 64, 65})
      list.push_back(conv2d({.n = 2,
                             .h = 7,
                             .w = 10,
                             .c = channels,
                             .k = channels + 1,
                             .r = 3,
                             .s = 3,
                             .padding = {1, 1},
                             .bias = true}));
    list.push_back(
        conv2d({.n = 3, .h = 28, .w = 28, .c = 1, .k = 16, .r = 3, .s = 3, .padding = {1, 1}}));
    list.push_back(conv2d({.n = 1,
                           .h = 13,
                           .w = 12,
                           .c = 6,
                           .k = 4,
                           .r = 7,
                           .s = 1,
                           .stride = {3, 2},
                           .padding = {3, 0},
                           .groups = 2,
                           .bias = true}));
    list.push_back(conv2d({.n = 2,
                           .h = 12,
                           .w = 12,
                           .c = 4,
                           .k = 8,
                           .r = 3,
                           .s = 3,
                           .padding = {4, 4},
                           .dilation = {4, 4}}));
    list.push_back(conv2d({.n = 0, .h = 4, .w = 4, .c = 2, .k = 3}));
  }
  return list;
}

inline Case draw_matmul(CaseDraw& d) {
  using C = MatmulCase::C;
  MatmulCase o{.m = d.extent(70), .n = d.extent(70), .k = d.extent(300)};
  o.trans_a = d.flip();
  o.trans_b = d.flip();
  constexpr C kC[] = {C::none, C::none, C::row, C::matrix};
  o.c = d.among(kC);
  if (d.integer(0, 3) == 0) {
    constexpr const char* kScales[] = {"1", "-1", "0.5", "2", "0"};
    o.alpha = d.among(kScales);
    o.beta = d.among(kScales);
  }
  if (d.integer(0, 3) == 0) {
    const std::int64_t batch = d.integer(1, 3);
    o.lead_a = o.lead = Shape{batch};
    if (d.flip()) o.lead_b = Shape{batch};
  }
  return matmul(o);
}

inline Case draw_linear(CaseDraw& d) {
  return linear({d.extent(60)}, d.extent(200), d.extent(70), d.flip());
}

inline Case draw_conv2d(CaseDraw& d) {
  Conv2dCase o{.n = d.integer(1, 3), .h = d.extent(12), .w = d.extent(12)};
  o.groups = d.integer(0, 3) == 0 ? d.integer(2, 4) : 1;
  o.c = o.groups * d.extent(o.groups == 1 ? 34 : 5);
  o.k = o.groups * d.extent(o.groups == 1 ? 34 : 5);
  o.r = d.integer(1, 4);
  o.s = d.integer(1, 4);
  o.stride = {d.integer(1, 3), d.integer(1, 3)};
  o.dilation = {d.integer(1, 2), d.integer(1, 2)};
  o.padding = {d.integer(0, 2), d.integer(0, 2)};
  // A window that fits.
  while (o.h + 2 * o.padding[0] < o.dilation[0] * (o.r - 1) + 1) ++o.h;
  while (o.w + 2 * o.padding[1] < o.dilation[1] * (o.s - 1) + 1) ++o.w;
  o.bias = d.flip();
  return conv2d(o);
}

}  // namespace roundoff::cases

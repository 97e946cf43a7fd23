// Pooling over NHWC windows.
#pragma once

#include <array>

#include "verify/case.h"

namespace roundoff::cases {

struct Pool2dCase {
  std::int64_t n = 1, h = 1, w = 1, c = 1;
  std::array<std::int64_t, 2> kernel{2, 2}, stride{2, 2}, padding{0, 0};
  bool count_include_pad = true;  // average only
};

inline constexpr std::string_view kPools[] = {"max_pool2d", "avg_pool2d"};

inline Case pool2d(std::string_view operation, const Pool2dCase& o) {
  const auto extent = [&](std::size_t axis, std::int64_t in) {
    return (in + 2 * o.padding[axis] - o.kernel[axis]) / o.stride[axis] + 1;
  };
  const auto text = [](const std::array<std::int64_t, 2>& v) {
    return std::to_string(v[0]) + "," + std::to_string(v[1]);
  };
  Case c{std::string(operation),
         {{"kernel", text(o.kernel)}, {"stride", text(o.stride)}},
         {{"x", {o.n, o.h, o.w, o.c}}},
         {o.n, extent(0, o.h), extent(1, o.w), o.c}};
  if (o.padding[0] != 0 || o.padding[1] != 0) c.parameters["padding"] = text(o.padding);
  const std::int64_t window = o.kernel[0] * o.kernel[1];
  const bool average = operation == "avg_pool2d";
  if (average && !o.count_include_pad) c.parameters["count_include_pad"] = "false";
  // An average by a power of two, as long as every window has the same divisor, has that many bits
  // behind the point.
  if (!average) c.terms = window;
  if (average && o.count_include_pad && (window & (window - 1)) == 0) c.terms = window * window;
  c.flops = static_cast<double>(c.y.numel() * window);
  return c;
}

inline std::vector<Case> pools(bool full) {
  std::vector<Case> list;
  for (const std::string_view op : kPools) {
    list.push_back(pool2d(op, {1, 2, 2, 1}));
    list.push_back(pool2d(op, {2, 7, 5, 3}));
    list.push_back(pool2d(op, {2, 8, 6, 33}));
    list.push_back(pool2d(op, {1, 9, 7, 5, {3, 2}, {2, 1}, {1, 1}}));
    if (op == "avg_pool2d") list.push_back(pool2d(op, {1, 9, 7, 5, {3, 2}, {2, 1}, {1, 1}, false}));
    if (!full) continue;
    list.push_back(pool2d(op, {3, 28, 28, 16}));
    list.push_back(pool2d(op, {1, 5, 5, 257, {5, 5}, {1, 1}}));
    list.push_back(pool2d(op, {2, 11, 13, 7, {3, 3}, {1, 2}, {1, 1}}));
    list.push_back(pool2d(op, {0, 4, 4, 2}));
  }
  return list;
}

inline Case draw_pool2d(std::string_view op, CaseDraw& d) {
  Pool2dCase o{d.integer(1, 3), d.extent(14), d.extent(14), d.extent(40)};
  o.kernel = {d.integer(1, 4), d.integer(1, 4)};
  o.stride = {d.integer(1, 3), d.integer(1, 3)};
  o.padding = {d.integer(0, o.kernel[0] / 2), d.integer(0, o.kernel[1] / 2)};
  while (o.h + 2 * o.padding[0] < o.kernel[0]) ++o.h;
  while (o.w + 2 * o.padding[1] < o.kernel[1]) ++o.w;
  o.count_include_pad = d.flip();
  return pool2d(op, o);
}

}  // namespace roundoff::cases

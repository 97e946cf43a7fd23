// Softmax and log-softmax along an axis.
#pragma once

#include "verify/case.h"

namespace roundoff::cases {

inline constexpr std::string_view kSoftmax[] = {"softmax", "log_softmax"};

inline Case softmax(std::string_view operation, const Shape& x, int axis = -1) {
  Case c{std::string(operation), {{"axis", std::to_string(axis)}}, {{"x", x}}, x};
  c.flops = 5 * static_cast<double>(x.numel());  // maximum, difference, exp, sum, quotient
  return c;
}

inline std::vector<Case> softmaxes(bool full) {
  std::vector<Case> list;
  for (const std::string_view op : kSoftmax) {
    for (const std::int64_t n : {1, 2, 3, 31, 33, 65, 127, 257, 1000, 1025})
      list.push_back(softmax(op, {3, n}));
    list.push_back(softmax(op, {2, 7, 5}, 1));
    list.push_back(softmax(op, {33, 3}, 0));
    if (!full) continue;
    for (const std::int64_t n : {32, 64, 128, 129, 255, 256, 1023, 2048, 3072, 4097, 6145, 16'385})
      list.push_back(softmax(op, {2, n}));
    list.push_back(softmax(op, {1, 200'000}));
    list.push_back(softmax(op, {257, 10}));
    list.push_back(softmax(op, {0, 5}));
    list.push_back(softmax(op, {3, 129, 4}, -2));
  }
  return list;
}

inline Case draw_softmax(std::string_view op, CaseDraw& d) {
  switch (d.integer(0, 3)) {
    case 0:
      return softmax(op, {d.extent(7), d.extent(60), d.extent(9)}, 1);
    case 1:
      return softmax(op, {d.extent(4), d.extent(4000)});
    default:
      return softmax(op, {d.extent(40), d.extent(300)});
  }
}

}  // namespace roundoff::cases

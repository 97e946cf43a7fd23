// Reductions over axes.
#pragma once

#include "verify/case.h"

namespace roundoff::cases {

inline constexpr std::string_view kReductions[] = {"sum", "mean", "max", "norm"};

// `axes` as a person writes them; empty: all. `count`: values of one reduction.
inline Case reduce(std::string_view operation, const Shape& x, const std::string& axes,
                   const Shape& y, bool keepdim = false) {
  Case c{std::string(operation), {}, {{"x", x}}, y};
  if (!axes.empty()) c.parameters["axis"] = axes;
  if (keepdim) c.parameters["keepdim"] = "true";
  const std::int64_t count = y.numel() == 0 ? 0 : x.numel() / y.numel();
  const bool power_of_two = count > 0 && (count & (count - 1)) == 0;
  if (operation == "sum") c.terms = std::max<std::int64_t>(count, 1);
  if (operation == "max") c.terms = 1;
  if (operation == "mean" && power_of_two) c.terms = count;
  c.flops = static_cast<double>(x.numel()) * (operation == "norm" ? 2 : 1);
  return c;
}

inline std::vector<Case> reductions(bool full) {
  std::vector<Case> list;
  for (const std::string_view op : kReductions) {
    for (const std::int64_t n : {1, 3, 33, 257, 1024}) list.push_back(reduce(op, {n}, "", {}));
    list.push_back(reduce(op, {7, 129}, "-1", {7}));
    list.push_back(reduce(op, {65, 31}, "0", {31}));
    list.push_back(reduce(op, {3, 17, 5}, "1", {3, 5}));
    list.push_back(reduce(op, {2, 3, 5, 4}, "0,2", {1, 3, 1, 4}, true));
    if (!full) continue;
    for (const std::int64_t n : {2, 31, 32, 255, 1023, 4097, 65537, 200'003})
      list.push_back(reduce(op, {n}, "", {}));
    list.push_back(reduce(op, {1025, 3}, "0", {3}));
    list.push_back(reduce(op, {64, 64}, "1", {64}));
    list.push_back(reduce(op, {3, 2, 700}, "0,-1", {2}));
    if (op != "max") list.push_back(reduce(op, {3, 0}, "1", {3}));
  }
  return list;
}

inline Case draw_reduce(std::string_view op, CaseDraw& d) {
  const std::int64_t i = d.extent(40), j = d.extent(300), k = d.extent(7);
  switch (d.integer(0, 4)) {
    case 0:
      return reduce(op, {i, j, k}, "", {});
    case 1:
      return reduce(op, {i, j, k}, "1", {i, k});
    case 2:
      return reduce(op, {k, i, j}, "-1", {k, i, 1}, true);
    case 3:
      return reduce(op, {j, i}, "0", {i});
    default:
      return reduce(op, {k, j, i}, "0,2", {j});
  }
}

}  // namespace roundoff::cases

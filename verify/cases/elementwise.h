// Elementwise operations: one argument, two with broadcasting, dropout.
#pragma once

#include "verify/case.h"

namespace roundoff::cases {

inline Case unary(std::string_view operation, const Shape& shape, CaseParameters parameters = {}) {
  const Domain domain = operation == "log" ? Domain::positive : Domain::real;
  Case c{std::string(operation), std::move(parameters), {{"x", shape, domain}}, shape};
  const auto n = static_cast<double>(shape.numel());
  c.terms = operation == "relu" ? 1 : 0;
  c.flops = operation == "relu" || operation == "exp" || operation == "log" ? n : 4 * n;
  return c;
}

// `y`: the shape that a and b broadcast to.
inline Case binary(std::string_view operation, const Shape& a, const Shape& b, const Shape& y) {
  const Domain domain = operation == "div" ? Domain::positive : Domain::real;
  Case c{std::string(operation), {}, {{"a", a}, {"b", b, domain}}, y};
  // A gradient is summed over the axes that its operand lacks.
  if (operation != "div") c.terms = std::max<std::int64_t>(y.numel(), 1);
  c.flops = static_cast<double>(y.numel());
  return c;
}

inline Case dropout(const Shape& shape, const std::string& p, std::int64_t seed = 5) {
  Case c{
      "dropout",
      {{"p", p}, {"seed", std::to_string(seed)}, {"step", "3"}, {"tensor", "2"}, {"sample0", "7"}},
      {{"x", shape}},
      shape};
  // 1 / (1 - p) is 1, 2 or 4.
  c.terms = p == "0" || p == "0.5" || p == "0.75" ? 4 : 0;
  c.flops = static_cast<double>(shape.numel());
  return c;
}

inline constexpr std::string_view kUnary[] = {"relu", "gelu", "tanh", "sigmoid", "exp", "log"};
inline constexpr std::string_view kBinary[] = {"add", "sub", "mul", "div"};

inline std::vector<Case> elementwise(bool full) {
  std::vector<Case> list;
  for (const std::string_view op : kUnary) {
    for (const std::int64_t n : {1, 3, 33, 255, 1025}) list.push_back(unary(op, {n}));
    list.push_back(unary(op, {3, 5, 7}));
    if (full)
      for (const std::int64_t n : {0, 2, 31, 32, 127, 256, 257, 1023, 4099, 65537})
        list.push_back(unary(op, {n}));
  }
  for (const std::int64_t n : {3, 257})
    list.push_back(unary("gelu", {n}, {{"approximate", "tanh"}}));
  for (const std::string_view op : kBinary) {
    for (const std::int64_t n : {1, 33, 1023}) list.push_back(binary(op, {n}, {n}, {n}));
    list.push_back(binary(op, {2, 3, 5}, {2, 3, 5}, {2, 3, 5}));
    list.push_back(binary(op, {17, 31}, {31}, {17, 31}));
    list.push_back(binary(op, {5, 1, 3}, {7, 1}, {5, 7, 3}));
    list.push_back(binary(op, {129}, Shape{}, {129}));
    if (full) {
      for (const std::int64_t n : {0, 2, 31, 256, 4097, 65537})
        list.push_back(binary(op, {n}, {n}, {n}));
      list.push_back(binary(op, Shape{}, {2, 2}, {2, 2}));
      list.push_back(binary(op, {257, 1}, {1, 65}, {257, 65}));
      list.push_back(binary(op, {64, 64}, {64, 1}, {64, 64}));
      list.push_back(binary(op, {2, 1, 3, 1}, {1, 5, 1, 7}, {2, 5, 3, 7}));
    }
  }
  for (const char* p : {"0", "0.5", "0.3"}) {
    list.push_back(dropout({3, 5}, p));
    list.push_back(dropout({17, 33}, p));
  }
  list.push_back(dropout({1025}, "0.75"));
  if (full)
    for (const char* p : {"0.1", "0.9", "1"})
      for (const Shape& s : {Shape{1}, Shape{2, 3, 255}, Shape{64, 1024}})
        list.push_back(dropout(s, p));
  return list;
}

inline Case draw_unary(std::string_view op, CaseDraw& d) {
  CaseParameters parameters;
  if (op == "gelu" && d.flip()) parameters["approximate"] = "tanh";
  return unary(op, {d.extent(5), d.extent(3000)}, std::move(parameters));
}

inline Case draw_binary(std::string_view op, CaseDraw& d) {
  const std::int64_t i = d.extent(9), j = d.extent(40), k = d.extent(130);
  const Shape y{i, j, k};
  switch (d.integer(0, 4)) {
    case 0:
      return binary(op, y, y, y);
    case 1:
      return binary(op, y, {k}, y);
    case 2:
      return binary(op, {j, 1}, y, y);
    case 3:
      return binary(op, {i, 1, k}, {j, 1}, y);
    default:
      return binary(op, y, Shape{}, y);
  }
}

inline Case draw_dropout(CaseDraw& d) {
  constexpr const char* kP[] = {"0", "0.1", "0.5", "0.75", "0.9"};
  return dropout({d.extent(20), d.extent(600)}, d.among(kP), d.integer(0, 1000));
}

}  // namespace roundoff::cases

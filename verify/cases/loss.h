// Losses: cross-entropy with its options, mean squared error, binary cross-entropy with logits.
#pragma once

#include "verify/case.h"

namespace roundoff::cases {

struct CrossEntropyCase {
  std::int64_t rows = 1, classes = 1;
  std::string reduction = "mean";
  std::string smoothing = "0";
  bool soft = false;
  bool weight = false;
};

inline Case cross_entropy(const CrossEntropyCase& o) {
  Case c{"cross_entropy", {{"reduction", o.reduction}}, {}, {}};
  if (o.smoothing != "0") c.parameters["label_smoothing"] = o.smoothing;
  c.inputs.push_back({"logits", {o.rows, o.classes}});
  if (o.soft)
    c.inputs.push_back({"target", {o.rows, o.classes}, Domain::share});
  else
    c.inputs.push_back({"target", {o.rows}, Domain::label, o.classes});
  if (o.weight) c.inputs.push_back({"weight", {o.classes}, Domain::positive});
  if (o.reduction == "none") c.y = Shape{o.rows};
  c.flops = (o.soft ? 7.0 : 5.0) * static_cast<double>(o.rows * o.classes);
  return c;
}

inline constexpr std::string_view kPointwiseLosses[] = {"mse", "bce_with_logits"};

inline Case pointwise_loss(std::string_view operation, const Shape& x,
                           const std::string& reduction) {
  Case c{std::string(operation), {{"reduction", reduction}}, {{"x", x}, {"target", x}}, {}};
  if (operation != "mse") c.inputs[1].domain = Domain::share;
  if (reduction == "none") c.y = x;
  // (x - t)^2 is at most 4 m^2, its gradient 2 dy (x - t).
  if (operation == "mse" && reduction != "mean") c.terms = 4 * std::max<std::int64_t>(x.numel(), 1);
  c.flops = (operation == "mse" ? 3 : 6) * static_cast<double>(x.numel());
  return c;
}

inline std::vector<Case> losses(bool full) {
  std::vector<Case> list{
      cross_entropy({1, 1}),
      cross_entropy({3, 2, "sum"}),
      cross_entropy({5, 10, "none"}),
      cross_entropy({4, 33, "mean", "0.1"}),
      cross_entropy({17, 257, "mean"}),
      cross_entropy({2, 1000, "sum", "0.1", false, true}),
      cross_entropy({7, 31, "mean", "0", false, true}),
      cross_entropy({5, 65, "mean", "0", true}),
      cross_entropy({3, 129, "none", "0.2", true, true}),
      cross_entropy({1, 1025, "sum", "0", true}),
  };
  if (full) {
    for (const char* r : {"none", "sum", "mean"})
      for (const char* smoothing : {"0", "0.1"})
        for (const bool soft : {false, true})
          for (const bool weight : {false, true})
            list.push_back(cross_entropy({9, 127, r, smoothing, soft, weight}));
    list.push_back(cross_entropy({2, 50'257}));
    list.push_back(cross_entropy({0, 3, "sum"}));
    list.push_back(cross_entropy({1025, 3}));
  }
  for (const std::string_view op : kPointwiseLosses)
    for (const char* r : {"none", "sum", "mean"}) {
      list.push_back(pointwise_loss(op, {3, 5}, r));
      list.push_back(pointwise_loss(op, {257}, r));
      if (!full) continue;
      list.push_back(pointwise_loss(op, {1}, r));
      list.push_back(pointwise_loss(op, {33, 65}, r));
      list.push_back(pointwise_loss(op, {4099}, r));
      list.push_back(pointwise_loss(op, {0}, r));
    }
  return list;
}

inline Case draw_cross_entropy(CaseDraw& d) {
  constexpr const char* kReduction[] = {"none", "sum", "mean"};
  constexpr const char* kSmoothing[] = {"0", "0.1", "0.5"};
  return cross_entropy(
      {d.extent(40), d.extent(700), d.among(kReduction), d.among(kSmoothing), d.flip(), d.flip()});
}

inline Case draw_pointwise_loss(std::string_view op, CaseDraw& d) {
  constexpr const char* kReduction[] = {"none", "sum", "mean"};
  return pointwise_loss(op, {d.extent(9), d.extent(900)}, d.among(kReduction));
}

}  // namespace roundoff::cases

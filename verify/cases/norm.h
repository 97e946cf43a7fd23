// Batch and layer normalisation.
#pragma once

#include "verify/case.h"

namespace roundoff::cases {

// Statistics over the last `axes` axes.
inline Case layer_norm(const Shape& x, int axes = 1, bool affine = true, const char* eps = "1e-5") {
  Case c{"layer_norm", {{"axes", std::to_string(axes)}, {"eps", eps}}, {{"x", x}}, x};
  const Shape tail(x.extents().last(static_cast<std::size_t>(axes)));
  if (affine) {
    c.inputs.push_back({"gamma", tail});
    c.inputs.push_back({"beta", tail});
  }
  c.flops = 8 * static_cast<double>(x.numel());
  return c;
}

inline Case batch_norm(const Shape& x, bool training, bool affine = true, int axis = -1,
                       bool running = true) {
  Case c{"batch_norm", {{"training", training ? "true" : "false"}}, {{"x", x}}, x};
  if (axis != -1) c.parameters["axis"] = std::to_string(axis);
  const std::int64_t channels = x[axis];
  if (affine) {
    c.inputs.push_back({"gamma", {channels}});
    c.inputs.push_back({"beta", {channels}});
  }
  if (running || !training) {
    c.inputs.push_back({"running_mean", {channels}});
    c.inputs.push_back({"running_var", {channels}, Domain::positive});
  }
  c.flops = (training ? 8 : 4) * static_cast<double>(x.numel());
  return c;
}

inline std::vector<Case> norms(bool full) {
  std::vector<Case> list;
  for (const std::int64_t n : {1, 2, 33, 127, 257, 1025}) list.push_back(layer_norm({3, n}));
  list.push_back(layer_norm({2, 3, 17}, 2));
  list.push_back(layer_norm({17, 65}, 1, false));
  for (const bool training : {true, false}) {
    list.push_back(batch_norm({2, 3}, training));
    list.push_back(batch_norm({17, 33}, training));
    list.push_back(batch_norm({3, 5, 4, 7}, training));
    list.push_back(batch_norm({257, 2}, training, false));
    list.push_back(batch_norm({4, 5, 9}, training, true, 1));
  }
  list.push_back(batch_norm({9, 5}, true, true, -1, false));
  if (!full) return list;
  for (const std::int64_t n : {3, 31, 64, 768, 4096, 4097}) list.push_back(layer_norm({2, n}));
  list.push_back(layer_norm({257, 31}));
  list.push_back(layer_norm({5, 300}, 1, true, "1e-6"));
  list.push_back(layer_norm({0, 8}));
  for (const bool training : {true, false}) {
    list.push_back(batch_norm({2, 14, 14, 16}, training));
    list.push_back(batch_norm({1025, 3}, training));
    list.push_back(batch_norm({5, 129}, training));
    list.push_back(batch_norm({8, 3, 6, 6}, training, true, 1));
  }
  return list;
}

inline Case draw_layer_norm(CaseDraw& d) {
  if (d.integer(0, 3) == 0)
    return layer_norm({d.extent(5), d.extent(9), d.extent(40)}, 2, d.flip());
  return layer_norm({d.extent(30), d.extent(1000)}, 1, d.flip());
}

inline Case draw_batch_norm(CaseDraw& d) {
  const bool training = d.flip();
  if (d.flip()) return batch_norm({d.extent(300) + 1, d.extent(40)}, training, d.flip());
  return batch_norm({d.extent(6) + 1, d.extent(20), d.extent(30)}, training, d.flip(), 1);
}

}  // namespace roundoff::cases

// Operations that pick and move values: embedding, reshape, flatten, transpose; and the end of a
// training step, unscale and clip.
#pragma once

#include "verify/case.h"

namespace roundoff::cases {

inline Case embedding(std::int64_t rows, std::int64_t width, const Shape& index,
                      bool padding = false) {
  std::vector<std::int64_t> y(index.extents().begin(), index.extents().end());
  y.push_back(width);
  Case c{"embedding",
         {},
         {{"table", {rows, width}}, {"index", index, Domain::index, rows}},
         Shape(std::span<const std::int64_t>(y))};
  if (padding) c.parameters["padding_index"] = "0";
  c.terms = std::max<std::int64_t>(index.numel(), 1);
  return c;
}

inline Case reshape(const Shape& x, const std::string& shape, const Shape& y) {
  Case c{"reshape", {{"shape", shape}}, {{"x", x}}, y};
  c.terms = 1;
  return c;
}

inline Case flatten(const Shape& x, int first, int last, const Shape& y) {
  Case c{
      "flatten", {{"first", std::to_string(first)}, {"last", std::to_string(last)}}, {{"x", x}}, y};
  c.terms = 1;
  return c;
}

// `axes` as a person writes them; empty: in reverse order.
inline Case transpose(const Shape& x, const std::vector<int>& axes) {
  std::string text;
  std::vector<std::int64_t> y;
  for (const int axis : axes) {
    text += concat(text.empty() ? "" : ",", axis);
    y.push_back(x[axis]);
  }
  if (axes.empty())
    for (int i = x.rank(); i-- > 0;) y.push_back(x[i]);
  Case c{"transpose", {}, {{"x", x}}, Shape(std::span<const std::int64_t>(y))};
  if (!text.empty()) c.parameters["axes"] = text;
  c.terms = 1;
  return c;
}

inline Case unscale_clip(const std::vector<Shape>& gradients, const std::string& scale,
                         const std::string& max_norm) {
  Case c{"unscale_clip", {{"scale", scale}, {"max_norm", max_norm}}, {}, {}};
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    c.inputs.push_back({concat("g", i), gradients[i]});
    elements += gradients[i].numel();
  }
  c.y = Shape{elements};  // all of them
  c.flops = 4 * static_cast<double>(elements);
  return c;
}

inline std::vector<Case> moves(bool full) {
  std::vector<Case> list{
      embedding(1, 1, {1}),
      embedding(5, 3, {7}),
      embedding(17, 33, {3, 5}, true),
      embedding(100, 65, {129}),
      reshape({2, 6}, "3,-1", {3, 4}),
      reshape({33}, "1,33", {1, 33}),
      flatten({2, 3, 5}, 1, -1, {2, 15}),
      flatten({7}, 0, -1, {7}),
      transpose({3, 5}, {}),
      transpose({33, 65}, {}),
      transpose({2, 7, 5}, {2, 0, 1}),
      transpose({2, 3, 5, 4}, {0, 2, 3, 1}),
      unscale_clip({{1}}, "1", "inf"),
      unscale_clip({{33}, {0}, {4, 5}}, "1024", "0.01"),
      unscale_clip({{257}, {3}}, "3", "1e6"),
      unscale_clip({{1025}}, "65536", "1"),
  };
  if (full) {
    list.push_back(embedding(1000, 128, {257}));
    list.push_back(embedding(3, 257, {1025}));
    list.push_back(embedding(4, 5, {0}));
    list.push_back(transpose({129, 257}, {1, 0}));
    list.push_back(transpose({1, 1, 3}, {1, 2, 0}));
    list.push_back(transpose({0, 3}, {}));
    list.push_back(transpose({5, 4, 3, 2, 3}, {4, 1, 3, 0, 2}));
    list.push_back(unscale_clip({{65'537}, {1}, {255}}, "512", "0.5"));
    list.push_back(unscale_clip({}, "2", "1"));
  }
  return list;
}

inline Case draw_embedding(CaseDraw& d) {
  return embedding(d.extent(100), d.extent(130), {d.extent(200)}, d.flip());
}

inline Case draw_transpose(CaseDraw& d) {
  if (d.flip()) return transpose({d.extent(100), d.extent(100)}, {});
  return transpose({d.extent(9), d.extent(30), d.extent(30)},
                   d.flip() ? std::vector<int>{2, 0, 1} : std::vector<int>{0, 2, 1});
}

inline Case draw_reshape(CaseDraw& d) {
  const std::int64_t i = d.extent(20), j = d.extent(200);
  if (d.flip()) return flatten({i, j}, 0, -1, {i * j});
  return reshape({i, j}, std::to_string(j) + ",-1", {j, i});
}

inline Case draw_unscale_clip(CaseDraw& d) {
  constexpr const char* kScales[] = {"1", "3", "1024", "65536", "0.1"};
  constexpr const char* kNorms[] = {"inf", "1", "0.01", "1e6"};
  return unscale_clip({{d.extent(900)}, {d.extent(30), d.extent(30)}}, d.among(kScales),
                      d.among(kNorms));
}

}  // namespace roundoff::cases

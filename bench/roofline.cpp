#include "bench/roofline.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/base/check.h"

namespace roundoff::bench {

namespace {

constexpr double kWidth = 1040;
constexpr double kLeft = 92, kRight = 640, kTop = 56, kBottom = 500;  // the chart's frame
constexpr double kLegend = 668;                                       // x of the list of points
constexpr double kLine = 18;                                          // of text
constexpr const char* kColours[] = {"#1b6ca8", "#c8553d", "#3a7d44", "#7b4fa3", "#8a6d1f"};
constexpr std::size_t kColourCount = std::size(kColours);

std::string number(double value, const char* format = "%.2f") {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// "0.1", "1", "10", "1k": a power of ten for an axis.
std::string decade_text(int exponent) {
  constexpr const char* kSuffix[] = {"", "k", "M", "G", "T", "P", "E"};
  if (exponent < 0) {
    std::string text = "0.";
    text.append(static_cast<std::size_t>(-exponent - 1), '0');
    return text + "1";
  }
  const auto group = std::min<std::size_t>(static_cast<std::size_t>(exponent) / 3, 6);
  std::string text = "1";
  text.append(static_cast<std::size_t>(exponent) - 3 * group, '0');
  return text + kSuffix[group];
}

// With three digits and a suffix: "312 T".
std::string rate_text(double value) {
  constexpr const char* kSuffix[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t group = 0;
  while (value >= 999.5 && group < 6) {
    value /= 1000;
    ++group;
  }
  return concat(number(value, "%.3g"), " ", kSuffix[group], "FLOP/s");
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out;
}

// Decades [first, last] of an axis, and where a value stands on it.
struct Axis {
  int first = 0, last = 1;
  double from = 0, to = 1;  // pixels
  double at(double value) const {
    return from + (std::log10(value) - first) / (last - first) * (to - from);
  }
};

Axis axis_of(double low, double high, double from, double to) {
  Axis a{static_cast<int>(std::floor(std::log10(low))),
         static_cast<int>(std::ceil(std::log10(high))), from, to};
  if (a.last <= a.first) a.last = a.first + 1;
  return a;
}

class Svg {
 public:
  explicit Svg(double height) {
    out_ = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", number(kWidth, "%.0f"),
                  "\" height=\"", number(height, "%.0f"), "\" viewBox=\"0 0 ",
                  number(kWidth, "%.0f"), " ", number(height, "%.0f"),
                  "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\">\n"
                  "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  }
  void line(double x0, double y0, double x1, double y1, const std::string& style) {
    out_ += concat("<line x1=\"", number(x0), "\" y1=\"", number(y0), "\" x2=\"", number(x1),
                   "\" y2=\"", number(y1), "\" ", style, "/>\n");
  }
  void text(double x, double y, const std::string& text, const std::string& style = "") {
    out_ += concat("<text x=\"", number(x), "\" y=\"", number(y), "\" ", style, ">", escaped(text),
                   "</text>\n");
  }
  void raw(const std::string& element) { out_ += element; }
  std::string finish() { return out_ + "</svg>\n"; }

 private:
  std::string out_;
};

// Filled: measured. The shape changes with the point, so that it can be told without colours.
void marker(Svg& svg, double x, double y, std::size_t i, bool filled) {
  const std::string colour = kColours[i % kColourCount];
  const std::string style =
      concat("fill=\"", filled ? colour : "white", "\" stroke=\"", colour, "\" stroke-width=\"2\"");
  const auto points = [&](std::initializer_list<std::pair<double, double>> corners) {
    std::string list;
    for (const auto& [dx, dy] : corners) list += concat(number(x + dx), ",", number(y + dy), " ");
    svg.raw(concat("<polygon points=\"", list, "\" ", style, "/>\n"));
  };
  switch (i % 4) {
    case 0:
      svg.raw(
          concat("<circle cx=\"", number(x), "\" cy=\"", number(y), "\" r=\"5\" ", style, "/>\n"));
      return;
    case 1:
      return points({{-5, -5}, {5, -5}, {5, 5}, {-5, 5}});
    case 2:
      return points({{0, -6}, {6, 5}, {-6, 5}});
    default:
      return points({{0, -6}, {6, 0}, {0, 6}, {-6, 0}});
  }
}

void draw_axes(Svg& svg, const Axis& x, const Axis& y) {
  const std::string grid = "stroke=\"#dddddd\"", fine = "stroke=\"#f1f1f1\"";
  for (int d = x.first; d <= x.last; ++d) {
    for (int i = 2; i < 10 && d < x.last; ++i)
      svg.line(x.at(i * std::pow(10, d)), kTop, x.at(i * std::pow(10, d)), kBottom, fine);
    const double at = x.at(std::pow(10, d));
    svg.line(at, kTop, at, kBottom, grid);
    svg.text(at, kBottom + kLine, decade_text(d), "text-anchor=\"middle\"");
  }
  for (int d = y.first; d <= y.last; ++d) {
    for (int i = 2; i < 10 && d < y.last; ++i)
      svg.line(kLeft, y.at(i * std::pow(10, d)), kRight, y.at(i * std::pow(10, d)), fine);
    const double at = y.at(std::pow(10, d));
    svg.line(kLeft, at, kRight, at, grid);
    svg.text(kLeft - 8, at + 4, decade_text(d), "text-anchor=\"end\"");
  }
  svg.raw(concat("<rect x=\"", number(kLeft), "\" y=\"", number(kTop), "\" width=\"",
                 number(kRight - kLeft), "\" height=\"", number(kBottom - kTop),
                 "\" fill=\"none\" stroke=\"#444444\"/>\n"));
  svg.text((kLeft + kRight) / 2, kBottom + 2.4 * kLine,
           "operations a byte of least traffic (FLOP/B)", "text-anchor=\"middle\"");
  svg.text(0, 0, "operations a second (FLOP/s)",
           concat("text-anchor=\"middle\" transform=\"translate(24 ", number((kTop + kBottom) / 2),
                  ") rotate(-90)\""));
}

// The slope up to the ridge, then the flat part, with the name above it.
void draw_roof(Svg& svg, const Axis& x, const Axis& y, const Roof& roof, std::size_t i,
               double label_y) {
  const double ridge = roof.operations_per_second / roof.bytes_per_second;
  const double low = std::pow(10, x.first), bottom = std::pow(10, y.first);
  // Where the slope enters the frame.
  const double begin = std::max(low, bottom / roof.bytes_per_second);
  const double end = std::pow(10, x.last);
  const std::string style =
      concat("stroke=\"#555555\" stroke-width=\"1.6\"", i == 0   ? ""
                                                        : i == 1 ? " stroke-dasharray=\"8 4\""
                                                        : i == 2 ? " stroke-dasharray=\"2 3\""
                                                                 : " stroke-dasharray=\"9 3 2 3\"");
  if (ridge > begin)
    svg.line(x.at(begin), y.at(begin * roof.bytes_per_second), x.at(std::min(ridge, end)),
             y.at(std::min(ridge, end) * roof.bytes_per_second), style);
  if (ridge < end)
    svg.line(x.at(std::max(ridge, low)), y.at(roof.operations_per_second), kRight,
             y.at(roof.operations_per_second), style);
  svg.line(kLegend, label_y - 4, kLegend + 30, label_y - 4, style);
  svg.text(kLegend + 38, label_y,
           concat(roof.name, ": ", rate_text(roof.operations_per_second), ", ",
                  number(roof.bytes_per_second * 1e-12, "%.2f"), " TB/s"));
}

}  // namespace

std::string roofline_svg(const Roofline& picture) {
  std::vector<RooflinePoint> points;
  for (const RooflinePoint& p : picture.points)
    if (p.operations_per_byte > 0 && p.operations_per_second > 0 &&
        std::isfinite(p.operations_per_byte) && std::isfinite(p.operations_per_second))
      points.push_back(p);
  const std::size_t left_out = picture.points.size() - points.size();
  ROUNDOFF_CHECK(!points.empty(), "roofline", "no row has operations, bytes and a rate to draw");

  double x_low = 1, x_high = 1000, y_low = 1e300, y_high = 0;
  for (const Roof& r : picture.roofs) {
    x_high = std::max(x_high, 2 * r.operations_per_second / r.bytes_per_second);
    y_low = std::min(y_low, r.operations_per_second / 100);
    y_high = std::max(y_high, 1.2 * r.operations_per_second);
  }
  for (const RooflinePoint& p : points) {
    x_low = std::min(x_low, p.operations_per_byte * 0.8);
    x_high = std::max(x_high, p.operations_per_byte * 1.3);
    y_low = std::min(y_low, p.operations_per_second * 0.7);
    y_high = std::max(y_high, p.operations_per_second * 1.3);
  }
  const Axis x = axis_of(x_low, x_high, kLeft, kRight);
  const Axis y = axis_of(y_low, y_high, kBottom, kTop);

  std::vector<std::string> caption = picture.caption;
  if (left_out != 0)
    caption.push_back(concat(left_out, " rows without operations or a rate are not drawn"));
  const auto entries = static_cast<double>(picture.roofs.size() + 2 * points.size() + 6);
  const double caption_y = std::max(kBottom + 4 * kLine, kTop + kLine * entries);
  Svg svg(caption_y + kLine * static_cast<double>(caption.size()) + 8);
  svg.text(kLeft, 32, picture.title, "font-size=\"17\" font-weight=\"bold\"");
  draw_axes(svg, x, y);

  double at = kTop + 10;
  if (!picture.roofs.empty()) {
    svg.text(kLegend, at, picture.roofs_from, "font-weight=\"bold\"");
    for (std::size_t i = 0; i < picture.roofs.size(); ++i)
      draw_roof(svg, x, y, picture.roofs[i], i, at += kLine);
    at += 1.6 * kLine;
  }
  for (const bool measured : {true, false}) {
    bool any = false;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const RooflinePoint& p = points[i];
      if ((p.provenance == Provenance::measured) != measured) continue;
      if (!any)
        svg.text(kLegend, at,
                 measured ? "measured (filled)" : concat(name(p.provenance), " (hollow)"),
                 "font-weight=\"bold\"");
      any = true;
      at += kLine;
      marker(svg, kLegend + 8, at - 4, i, measured);
      svg.text(kLegend + 22, at, concat(i + 1, "  ", p.name));
      at += kLine;
      svg.text(kLegend + 38, at,
               concat(rate_text(p.operations_per_second), " at ",
                      number(p.operations_per_byte, "%.3g"), " FLOP/B"),
               "fill=\"#555555\"");
      const double px = x.at(p.operations_per_byte), py = y.at(p.operations_per_second);
      marker(svg, px, py, i, measured);
      // Numbers go around their markers, because points of one problem stand above each other.
      const bool right = i % 2 == 0;
      const double down = i % 4 < 2 ? -3 : 11;
      svg.text(px + (right ? 9 : -9), py + down, concat(i + 1),
               concat("font-size=\"11\" text-anchor=\"", right ? "start" : "end", "\""));
    }
    if (any) at += 1.6 * kLine;
  }
  for (std::size_t i = 0; i < caption.size(); ++i)
    svg.text(kLeft, caption_y + kLine * static_cast<double>(i), caption[i], "fill=\"#333333\"");
  return svg.finish();
}

}  // namespace roundoff::bench

// Figures: as data, as a gnuplot script that draws them, and as an SVG that a page may hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "study/study.h"

namespace roundoff::study {

// Throws Error, naming the figure, for series whose x, y, low and high differ in length.
void check(const Figure& figure);

// Where the figure's numbers come from: its series' kinds, in their order, without repetition.
std::vector<Provenance> provenances(const Figure& figure);

// A row a point: series, x (and its category's name), y, and the interval where there is one; a
// column of each for every kind of provenance. What cannot be drawn is in it.
Table data_table(const Figure& figure);

// Points that have a place on the figure's axes, and those that have none: not finite, or not
// positive on a logarithmic axis.
struct PointCount {
  std::int64_t drawn = 0;
  std::int64_t left_out = 0;
};
PointCount count_points(const Figure& figure);

// A script that holds its data and writes NAME.svg into the working folder; a point that is left
// out breaks its line. Colours are Okabe and Ito's (2008), told apart with every kind of colour
// vision; shapes and dashes differ too, for print without colour.
std::string gnuplot_script(const Figure& figure);

// gnuplot's SVG for a page that holds several: prologue gone, every id prefixed with `id`, the
// title replaced by `title` and the description by `description`, both escaped here. Throws Error
// for text that is no SVG or that holds a script.
std::string inline_svg(std::string_view svg, std::string_view id, std::string_view title,
                       std::string_view description);

}  // namespace roundoff::study

// A roofline: operations a second over operations a byte, both logarithmic, as an SVG picture.
#pragma once

#include <string>
#include <vector>

#include "bench/provenance.h"

namespace roundoff::bench {

// What a device can do at most: the lower of a rate and a bandwidth.
struct Roof {
  std::string name;
  double operations_per_second = 0;
  double bytes_per_second = 0;
};

struct RooflinePoint {
  std::string name;
  double operations_per_byte = 0;
  double operations_per_second = 0;
  Provenance provenance = Provenance::predicted;  // filled where measured, hollow otherwise
};

struct Roofline {
  std::string title;
  std::vector<Roof> roofs;
  std::string roofs_from;  // "peaks cited from the makers' data sheets"
  std::vector<RooflinePoint> points;
  std::vector<std::string> caption;  // lines below
};

// Points that are not above 0 on both axes are left out, and the caption says how many. Throws
// Error where there is nothing to draw.
std::string roofline_svg(const Roofline& picture);

}  // namespace roundoff::bench

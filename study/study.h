// Studies: experiments that answer a question of the field and write down how. A study is one file
// of this folder and one line in list.cpp (docs/studies.md shows how to write one).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/provenance.h"
#include "bench/table.h"
#include "engine/device.h"
#include "kernels/base/check.h"

namespace roundoff::study {

// Thrown between runs where Options::stop says so.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// What a person may ask for.
struct Options {
  bool quick = false;  // under 40 seconds on 2 cores, in place of under ten minutes
  Device device = Device::cpu;
  std::vector<std::uint64_t> seeds = {};  // empty: the study's own
  // A data set's name as `roundoff train --data` has it; empty: the study's own.
  std::string data = {};
  std::function<void(std::string_view)> progress = {};  // a line on what is being done
  std::function<bool()> stop = {};  // asked between runs; true: throw Interrupted
};
// For a study to call before each of its runs: says what comes, and throws Interrupted where the
// person has asked to stop.
inline void begin(const Options& options, std::string_view what) {
  if (options.stop && options.stop()) throw Interrupted("[study] interrupted");
  if (options.progress) options.progress(what);
}

// Points, or a line through them; x and y of one length. A value that is not finite is left out.
struct Series {
  enum class Style : unsigned char { line, dots, line_and_dots, bars };
  std::string name;
  std::vector<double> x = {};
  std::vector<double> y = {};
  Style style = Style::line;
  // Ends of an interval around each y, drawn as an error bar; both empty, or of y's length. A NaN
  // is a y without one.
  std::vector<double> low = {};
  std::vector<double> high = {};
  // Where this series' numbers come from, if not from where the figure says.
  std::optional<Provenance> provenance = {};
};

struct Figure {
  std::string name;     // of its files: lower case, digits and hyphens
  std::string caption;  // a sentence or two: what one sees
  std::string x_label;  // with the unit
  std::string y_label;
  std::vector<Series> series = {};
  bool log_x = false, log_y = false;
  Provenance provenance = Provenance::measured;
  // Names of x = 0, 1, 2, ...; empty: x is a number.
  std::vector<std::string> categories = {};
};

// Something that the study says is so, checked on this very run. One that does not hold makes the
// command exit with 1.
struct Claim {
  std::string
      text;  // "Unequal windows, weighted by their samples, give the large batch's gradient."
  std::string seen;  // the numbers that it was judged by, and the bound
  bool holds = false;
};

// BibTeX of a source: key, and fields such as {"author", "..."}.
struct Reference {
  std::string key;
  std::string kind;  // article, inproceedings, book, misc
  std::vector<std::pair<std::string, std::string>> fields = {};
};

// All that a report is written from.
struct Result {
  std::string title;
  std::string question;
  std::vector<std::string> method = {};  // paragraphs
  std::vector<Table> tables = {};
  std::vector<Figure> figures = {};
  std::vector<Claim> claims = {};
  std::vector<std::string> shows = {};          // sentences
  std::vector<std::string> does_not_show = {};  // sentences
  std::vector<std::string> skipped = {};        // "cold start of a GPU: needs a GPU"
  std::vector<Reference> references = {};
  std::vector<std::uint64_t> seeds = {};  // that were used; n is their number
};

struct Study {
  std::string_view name;      // as typed
  std::string_view question;  // one line, for --help and the list
  Result (*run)(const Options& options);
};

// All studies, in the order of a report.
std::span<const Study> studies();

}  // namespace roundoff::study

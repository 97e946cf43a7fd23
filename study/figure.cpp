#include "study/figure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "study/text.h"

namespace roundoff::study {

namespace {

constexpr const char* kColours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                    "#E69F00", "#56B4E9", "#000000"};
constexpr int kShapes[] = {7, 5, 9, 13, 6, 4, 8};
constexpr int kWidth = 640;
constexpr int kFont = 17;

bool has_place(double value, bool log) { return std::isfinite(value) && (!log || value > 0); }

bool has_place(const Figure& f, const Series& s, std::size_t i) {
  return has_place(s.x[i], f.log_x) && has_place(s.y[i], f.log_y);
}

// The end of an error bar that has a place on the axis, or y itself.
double bar_end(const Figure& f, const std::vector<double>& ends, const Series& s, std::size_t i) {
  return !ends.empty() && has_place(ends[i], f.log_y) ? ends[i] : s.y[i];
}

bool draws(const Figure& f, const Series& s) {
  for (std::size_t i = 0; i < s.y.size(); ++i)
    if (has_place(f, s, i)) return true;
  return false;
}

bool is_bars(const Series& s) { return s.style == Series::Style::bars; }

bool is_dots(const Series& s) { return s.style == Series::Style::dots; }

// Horizontal shifts of a series' points over categories, so that equal values of several seeds, and
// of several series, stay apart. Zero for everything else.
std::vector<double> spread(const Figure& f, const Series& s) {
  std::vector<double> shift(s.x.size(), 0.0);
  if (f.categories.empty() || !is_dots(s)) return shift;
  std::map<double, int> shared;  // series of dots by place
  for (const Series& other : f.series) {
    if (!is_dots(other)) continue;
    const std::set<double> places(other.x.begin(), other.x.end());
    for (const double place : places) ++shared[place];
  }
  const bool dodge =
      std::any_of(shared.begin(), shared.end(), [](const auto& entry) { return entry.second > 1; });
  double slots = 0;
  double own = 0;
  for (const Series& other : f.series) {
    if (!is_dots(other)) continue;
    if (&other == &s) own = slots;
    ++slots;
  }
  if (!dodge) slots = 1;
  const double width = 0.7 / slots;
  const double centre = dodge ? (own - (slots - 1) / 2) * width : 0;
  std::map<double, int> total;
  for (const double x : s.x) ++total[x];
  std::map<double, int> seen;
  for (std::size_t i = 0; i < s.x.size(); ++i) {
    const int n = total[s.x[i]];
    const int k = seen[s.x[i]]++;
    // A single series' points stay near their category.
    const double step = std::min(0.06, 0.6 * width / n);
    shift[i] = centre + (k - (n - 1) / 2.0) * step;
  }
  return shift;
}

std::size_t display_length(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

struct Axis {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool powers_of_two = true;
  void add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
    int exponent = 0;
    powers_of_two = powers_of_two && v > 0 && std::frexp(v, &exponent) == 0.5;
  }
};

// gnuplot's lines for one logarithmic axis, "x" or "y".
std::string log_axis(const char* axis, const Axis& range) {
  const std::string a = axis;
  if (range.powers_of_two && range.high > range.low) {
    std::string out = "set logscale " + a + " 2\n";
    if (range.high >= 4096 || range.low < 1.0 / 64) out += "set format " + a + " '2^{%L}'\n";
    return out;
  }
  std::string out = "set logscale " + a + "\n";
  if (range.high >= 1e5 || range.low < 1e-3) out += "set format " + a + " '10^{%T}'\n";
  return out;
}

}  // namespace

void check(const Figure& figure) {
  for (const Series& s : figure.series) {
    const auto fits = [&](const std::vector<double>& v) {
      return v.empty() || v.size() == s.y.size();
    };
    ROUNDOFF_CHECK(
        s.x.size() == s.y.size() && fits(s.low) && fits(s.high) && s.low.empty() == s.high.empty(),
        "figure", figure.name, ": series '", clean(s.name), "' has ", s.x.size(), " x, ",
        s.y.size(), " y, ", s.low.size(), " low and ", s.high.size(), " high");
  }
}

std::vector<Provenance> provenances(const Figure& figure) {
  std::vector<Provenance> kinds;
  for (const Series& s : figure.series) {
    const Provenance kind = s.provenance.value_or(figure.provenance);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  if (kinds.empty()) kinds.push_back(figure.provenance);
  return kinds;
}

Table data_table(const Figure& figure) {
  const bool named = !figure.categories.empty();
  std::vector<Column> columns{{"series"}};
  // A table's columns have names of their own: equal axis labels would be one key in JSON.
  const std::string x = figure.x_label.empty() ? "x" : figure.x_label;
  std::string y = figure.y_label.empty() ? "y" : figure.y_label;
  if (y == x) y += " (y)";
  if (named) {
    columns.push_back({x});
  } else {
    columns.push_back({x, Provenance::none, 6});  // where it was looked at, no finding
  }
  struct Group {
    Provenance kind = Provenance::none;
    bool intervals = false;
  };
  std::vector<Group> groups;
  for (const Provenance kind : provenances(figure)) {
    Group group{kind};
    for (const Series& s : figure.series)
      group.intervals =
          group.intervals || (s.provenance.value_or(figure.provenance) == kind && !s.low.empty());
    groups.push_back(group);
  }
  for (const Group& group : groups) {
    const std::string apart = groups.size() > 1 ? concat(", ", name(group.kind)) : "";
    columns.push_back({concat(y, apart), group.kind, 6});
    if (!group.intervals) continue;
    columns.push_back({concat("low", apart), group.kind, 6});
    columns.push_back({concat("high", apart), group.kind, 6});
  }
  Table table(figure.name, columns);
  for (const Series& s : figure.series) {
    for (std::size_t i = 0; i < s.y.size(); ++i) {
      std::vector<Cell> row{s.name};
      const double at = s.x[i];
      const bool known = named && at >= 0 && at < static_cast<double>(figure.categories.size()) &&
                         at == std::floor(at);
      if (known) {
        row.emplace_back(figure.categories[static_cast<std::size_t>(at)]);
      } else if (named) {
        row.emplace_back(shortest(at));
      } else {
        row.emplace_back(at);
      }
      const auto add = [&](bool present, double value) {
        if (present)
          row.emplace_back(value);
        else
          row.emplace_back();
      };
      for (const Group& group : groups) {
        const bool own = s.provenance.value_or(figure.provenance) == group.kind;
        add(own, s.y[i]);
        if (!group.intervals) continue;
        for (const std::vector<double>* ends : {&s.low, &s.high})
          add(own && !ends->empty(), ends->empty() ? 0 : (*ends)[i]);
      }
      table.add_row(std::move(row));
    }
  }
  return table;
}

PointCount count_points(const Figure& figure) {
  PointCount count;
  for (const Series& s : figure.series)
    for (std::size_t i = 0; i < s.y.size(); ++i)
      ++(has_place(figure, s, i) ? count.drawn : count.left_out);
  return count;
}

std::string gnuplot_script(const Figure& f) {
  check(f);
  Axis x_range;
  Axis y_range;
  std::size_t longest = 1;
  std::size_t shown = 0;
  double bars = 0;
  for (const Series& s : f.series) {
    if (!draws(f, s)) continue;
    ++shown;
    bars += is_bars(s);
    longest = std::max(longest, display_length(s.name));
    for (std::size_t i = 0; i < s.y.size(); ++i) {
      if (!has_place(f, s, i)) continue;
      x_range.add(s.x[i]);
      y_range.add(s.y[i]);
      if (s.low.empty()) continue;
      for (const std::vector<double>* ends : {&s.low, &s.high})
        y_range.add(bar_end(f, *ends, s, i));
    }
  }
  // The legend is under the plot, in as many columns as fit, and the picture grows by its rows.
  const bool legend = shown > 1;
  // It begins under the axis, some 120 points from the left; a letter is 10 wide at most.
  const std::size_t fit = static_cast<std::size_t>(kWidth - 130) / (65 + 10 * longest);
  const std::size_t columns = std::clamp<std::size_t>(fit, 1, 3);
  const std::size_t rows = legend ? (shown + columns - 1) / columns : 0;
  std::size_t widest_category = 0;
  for (const std::string& c : f.categories)
    widest_category = std::max(widest_category, display_length(c));
  const bool rotate = widest_category * f.categories.size() > 50;
  const std::size_t height =
      400 + 22 * rows + (rotate ? 6 * std::min<std::size_t>(widest_category, 30) : 0);

  const std::string file = file_name(f.name, "figure");
  std::string id = file;  // gnuplot takes letters, digits and _
  std::replace(id.begin(), id.end(), '-', '_');
  std::string out = "# " + clean(f.caption) + "\n# Draw it again: gnuplot -d " + file + ".gp\n";
  out += concat("set terminal svg size ", kWidth, ",", height, " dynamic rounded enhanced font ",
                "'sans-serif,", kFont, "' name '", id, "' background rgb 'white'\n");
  out += "set output '" + file + ".svg'\n";
  out += "set encoding utf8\nset border 3\nset tics nomirror out\nset grid lc rgb '#d9d9d9' lw 1\n";
  out += "set xlabel " + gnuplot_string(f.x_label) + " noenhanced offset 0,0.3\n";
  out += "set ylabel " + gnuplot_string(f.y_label) + " noenhanced\n";
  // Axes' numbers: as many digits as they need.
  out += "set format '%.6g'\n";
  out += legend ? concat("set key below left Left reverse vertical maxcols ", columns, " maxrows ",
                         rows, " noenhanced samplen 2.5 spacing 1.1\n")
                : std::string("unset key\n");
  if (f.log_x) out += log_axis("x", x_range);
  if (f.log_y) out += log_axis("y", y_range);
  if (!f.categories.empty()) {
    out += "set xtics (";
    for (std::size_t i = 0; i < f.categories.size(); ++i)
      out += (i == 0 ? "" : ", ") + gnuplot_string(f.categories[i]) + " " + std::to_string(i);
    out += rotate ? ") rotate by -35 noenhanced\n" : ") noenhanced\n";
    out += concat("set xrange [-0.6:", static_cast<double>(f.categories.size()) - 0.4, "]\n");
  } else if (!f.log_x && x_range.high > x_range.low && bars == 0) {
    const double margin = 0.02 * (x_range.high - x_range.low);
    out += "set xrange [" + shortest(x_range.low - margin) + ":" + shortest(x_range.high + margin) +
           "]\n";
  }
  // Bars stand beside each other; each group takes four fifths of the smallest step.
  double step = std::numeric_limits<double>::infinity();
  for (const Series& s : f.series) {
    if (!is_bars(s)) continue;
    std::vector<double> at;
    for (std::size_t i = 0; i < s.y.size(); ++i)
      if (has_place(f, s, i)) at.push_back(s.x[i]);
    std::sort(at.begin(), at.end());
    for (std::size_t i = 1; i < at.size(); ++i)
      if (at[i] > at[i - 1]) step = std::min(step, at[i] - at[i - 1]);
  }
  if (!std::isfinite(step)) step = 1;
  const double bar = bars > 0 ? 0.8 * step / bars : 0;
  // Points at the frame would be cut.
  if (bars == 0 && !f.log_y) out += "set offsets 0, 0, graph 0.05, graph 0.05\n";
  // Nor does an axis of what is never negative go below zero.
  const bool from_zero = y_range.low >= 0 && y_range.low <= 0.25 * y_range.high;
  if (bars == 0 && !f.log_y && from_zero) out += "set yrange [0:*]\n";
  if (bars > 0) {
    out += "set style fill solid 0.75 border -1\nset boxwidth " + shortest(bar) + "\n";
    // A bar's length is its value, so its axis starts at zero.
    if (!f.log_y && y_range.low >= 0) out += "set yrange [0:*]\n";
  }

  std::string plots;
  std::size_t n = 0;
  double bar_index = 0;
  for (const Series& s : f.series) {
    if (!draws(f, s)) continue;
    const std::string colour = kColours[n % std::size(kColours)];
    const int shape = kShapes[n % std::size(kShapes)];
    const std::string block = "$series" + std::to_string(n);
    // On a logarithmic x axis a shift would be a factor: bars are drawn as lines from the axis.
    const double shift = is_bars(s) && !f.log_x ? (bar_index++ - (bars - 1) / 2) * bar : 0;
    const std::vector<double> apart = spread(f, s);
    std::string data = "# " + clean(s.name) + "\n";
    for (std::size_t i = 0; i < s.y.size(); ++i) {
      if (!has_place(f, s, i)) {
        data += "\n";
        continue;
      }
      data += concat(shortest(s.x[i] + shift + apart[i]), " ", shortest(s.y[i]));
      if (!s.low.empty())
        data +=
            concat(" ", shortest(bar_end(f, s.low, s, i)), " ", shortest(bar_end(f, s.high, s, i)));
      data += "\n";
    }
    out += concat(block, " << EOD\n", data, "EOD\n");

    const std::string look = concat(" lw 2.5 dt ", n % 5 + 1, " lc rgb '", colour, "'");
    const std::string dots = concat(" pt ", shape, " ps 0.8");
    std::string style;
    switch (s.style) {
      case Series::Style::line:
        style = "lines" + look;
        break;
      case Series::Style::dots:
        style = concat("points lw 1.5 lc rgb '", colour, "'", dots);
        break;
      case Series::Style::line_and_dots:
        style = "linespoints" + look + dots;
        break;
      case Series::Style::bars:
        style = concat(f.log_x ? "impulses lw 8 lc rgb '" : "boxes lw 1 lc rgb '", colour, "'");
        break;
    }
    std::string both =
        concat(block, " using 1:2 with ", style, " title ", gnuplot_string(s.name), " noenhanced");
    if (!s.low.empty()) {
      const std::string ends =
          concat(block, " using 1:2:3:4 with yerrorbars lw 1.5 pt 7 ps 0 lc rgb '",
                 is_bars(s) ? std::string("#000000") : colour, "' notitle");
      // gnuplot leaves a hole where an error bar's own point would be: points cover it, bars not.
      both = is_bars(s) ? concat(both, ", \\\n  ", ends) : concat(ends, ", \\\n  ", both);
    }
    plots += concat(plots.empty() ? "" : ", \\\n  ", both);
    ++n;
  }
  if (!plots.empty()) out += "plot " + plots + "\n";
  return out;
}

std::string inline_svg(std::string_view svg, std::string_view id, std::string_view title,
                       std::string_view description) {
  const std::size_t begin = svg.find("<svg");
  const std::size_t end = svg.rfind("</svg>");
  ROUNDOFF_CHECK(begin != std::string_view::npos && end != std::string_view::npos && begin < end,
                 "figure", "'", clean(id), "': what gnuplot wrote is no SVG");
  std::string text(svg.substr(begin, end + 6 - begin));
  for (const char* part : {"<script", "<foreignObject"})
    ROUNDOFF_CHECK(text.find(part) == std::string::npos, "figure", "'", clean(id),
                   "': what gnuplot wrote holds ", part);
  const std::string prefix = file_name(id, "figure") + "-";
  for (const char* mark : {"id='", "id=\"", "href='#", "href=\"#", "url(#", "url('#"}) {
    const std::string_view m = mark;
    for (std::size_t at = text.find(m); at != std::string::npos;
         at = text.find(m, at + m.size() + prefix.size())) {
      // "gradient-id='" and the like are other attributes.
      const bool whole =
          m[0] != 'i' || text[at - 1] == ' ' || text[at - 1] == '\t' || text[at - 1] == '\n';
      if (whole) text.insert(at + m.size(), prefix);
    }
  }
  const auto replace = [&](const char* open, const char* close, const std::string& with) {
    const std::size_t from = text.find(open);
    const std::size_t to = text.find(close);
    if (from == std::string::npos || to == std::string::npos || to < from) return;
    text.replace(from, to - from, with);
  };
  replace("<title>", "</title>", "<title id=\"" + prefix + "title\">" + html(title));
  replace("<desc>", "</desc>", "<desc id=\"" + prefix + "desc\">" + html(description));
  text.insert(4, " role=\"img\" aria-labelledby=\"" + prefix + "title " + prefix + "desc\"");
  return text;
}

}  // namespace roundoff::study

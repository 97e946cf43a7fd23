#include "study/page.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "study/citation.h"
#include "study/figure.h"
#include "study/page_style.h"
#include "study/text.h"

namespace roundoff::study {

namespace {

using Json = nlohmann::ordered_json;

std::string seconds_text(double seconds) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, seconds < 100 ? "%.1f s" : "%.0f s", seconds);
  return buffer;
}

std::string link(const std::string& file, const std::string& text) {
  return "<a href=\"" + html(file) + "\">" + html(text) + "</a>";
}

std::string tag(Provenance provenance) {
  if (provenance == Provenance::none) return {};
  const std::string text(name(provenance));
  return " <span class=\"tag " + text + "\">" + text + "</span>";
}

// Of a figure; where its series differ, each kind with the names of its series.
std::string tags(const Figure& f) {
  const std::vector<Provenance> kinds = provenances(f);
  if (kinds.size() == 1) return tag(kinds[0]);
  std::string out;
  for (const Provenance kind : kinds) {
    out += tag(kind);
    std::string names;
    for (const Series& s : f.series)
      if (s.provenance.value_or(f.provenance) == kind)
        names += concat(names.empty() ? "" : "; ", s.name);
    out += concat(" ", html(names));
  }
  return out;
}

std::string head(const std::string& title) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'; img-src data:\">\n<title>" +
         html(title) + "</title>\n<style>\n" + std::string(kPageStyle) +
         "</style>\n</head>\n<body>\n";
}

std::string section(const char* id, const std::string& title, const std::string& body) {
  return std::string("<section id=\"") + id + "\">\n<h2>" + html(title) + "</h2>\n" + body +
         "</section>\n";
}

std::string paragraphs(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += "<p>" + html(text) + "</p>\n";
  return out;
}

std::string list(const std::vector<std::string>& texts) {
  std::string out = "<ul>\n";
  for (const std::string& text : texts) out += "<li>" + html(text) + "</li>\n";
  return out + "</ul>\n";
}

std::string pre(const std::string& text) {
  std::string out = "<pre tabindex=\"0\">";
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t to = std::min(text.find('\n', from), text.size());
    out += html(std::string_view(text).substr(from, to - from)) + "\n";
    from = to + 1;
  }
  return out + "</pre>\n";
}

std::string details(const std::string& summary, const std::string& body) {
  return "<details>\n<summary>" + html(summary) + "</summary>\n" + body + "</details>\n";
}

std::string verdict(bool holds) {
  return holds ? "<span class=\"ok\">\u2713 holds</span>"
               : "<span class=\"bad\">\u2717 does not hold</span>";
}

std::string claims(const std::vector<Claim>& all) {
  std::string out = "<ol class=\"claims\">\n";
  for (const Claim& c : all)
    out += "<li><p>" + verdict(c.holds) + " " + html(c.text) + "</p>\n<p class=\"seen\">" +
           html(c.seen) + "</p></li>\n";
  return out + "</ol>\n";
}

std::string axis(const std::string& label, bool log, const char* fallback) {
  return (label.empty() ? std::string(fallback) : label) + (log ? ", logarithmic" : "");
}

std::string figure(const DrawnFigure& drawn, std::size_t number, const ReportContext& context) {
  const Figure& f = *drawn.figure;
  const std::string id = "figure-" + std::to_string(number);
  std::string out = "<figure id=\"" + id + "\">\n";
  const PointCount points = count_points(f);
  std::string description = "Horizontal: " + axis(f.x_label, f.log_x, "x") +
                            ". Vertical: " + axis(f.y_label, f.log_y, "y") + ". Series:";
  for (std::size_t i = 0; i < f.series.size(); ++i)
    description += (i == 0 ? " " : "; ") + f.series[i].name;
  if (!drawn.svg.empty()) {
    out += "<div class=\"plot\">" + inline_svg(drawn.svg, id, f.caption, description + ".") +
           "</div>\n";
  } else if (points.drawn == 0) {
    out += "<p class=\"missing\">There is no point to draw.</p>\n";
  } else {
    out += "<p class=\"missing\">Not drawn: " + html(drawn.problem) + "</p>\n";
  }
  out += "<figcaption><b>Figure " + std::to_string(number) + ".</b> " + html(f.caption) + tags(f);
  if (points.left_out > 0)
    out += html(concat(" Not drawn: ", points.left_out, " of ", points.left_out + points.drawn,
                       " points that are not finite",
                       f.log_x || f.log_y ? " or not positive on a logarithmic axis" : "", "."));
  out += "<br><span class=\"files\">" + link(drawn.file + ".csv", "CSV") + " " +
         link(drawn.file + ".gp", "gnuplot script");
  if (!drawn.svg.empty()) out += " " + link(drawn.file + ".svg", "SVG");
  out += "</span><br><span class=\"again\">Again: <code>" + html(context.command) +
         "</code>; drawn again by <code>" + html("gnuplot -d " + drawn.file + ".gp") +
         "</code> in this folder.</span></figcaption>\n";
  constexpr std::size_t kShown = 200;
  const std::string table = html_table(data_table(f), kShown);
  const bool shown_anyway = drawn.svg.empty() && points.drawn > 0;
  out += shown_anyway ? table : details("The figure's data", table);
  return out + "</figure>\n";
}

std::string value_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::string out;
    for (const Json& element : value) out += (out.empty() ? "" : ", ") + value_text(element);
    return out;
  }
  if (value.is_object()) {
    std::string out;
    for (const auto& [key, element] : value.items())
      out += (out.empty() ? "" : " ") + value_text(element);
    return out;
  }
  return value.dump();
}

std::string environment(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return "<p>Not recorded.</p>\n";
  std::string out = "<div class=\"scroll\" tabindex=\"0\"><table class=\"facts\">\n";
  for (const auto& [key, value] : json.items()) {
    std::string shown = value_text(value);
    if (key == "command_line" && value.is_array()) {
      shown.clear();
      for (const Json& word : value)
        shown += (shown.empty() ? "" : " ") + shell_word(value_text(word));
    }
    out += "<tr><th scope=\"row\">" + html(key) + "</th><td>" +
           html(shown.empty() ? "none" : shown) + "</td></tr>\n";
  }
  return out + "</table></div>\n";
}

std::string seeds_text(const std::vector<std::uint64_t>& seeds) {
  if (seeds.empty()) return "no seed";
  std::string out = concat("n = ", seeds.size(), seeds.size() == 1 ? " seed (" : " seeds (");
  for (std::size_t i = 0; i < seeds.size(); ++i) out += concat(i == 0 ? "" : ", ", seeds[i]);
  return out + ")";
}

constexpr const char* kProvenance =
    "<p>Every column and figure says where its numbers come from: "
    "<span class=\"tag measured\">measured</span> by a clock or in this very run, "
    "<span class=\"tag counted\">counted</span> by the run or by the emulator, "
    "<span class=\"tag modelled\">modelled</span> by arithmetic that is defined exactly, "
    "<span class=\"tag predicted\">predicted</span> by a cost model, "
    "<span class=\"tag cited\">cited</span> from a publication.</p>\n";

}  // namespace

std::string html_table(const Table& table, std::size_t most) {
  std::vector<bool> numeric(table.columns().size(), true);
  for (const auto& row : table.rows())
    for (std::size_t i = 0; i < row.size(); ++i)
      if (std::holds_alternative<std::string>(row[i]) || std::holds_alternative<bool>(row[i]))
        numeric[i] = false;
  const auto cell = [&](std::size_t i) { return numeric[i] ? " class=\"n\"" : ""; };
  std::string out = "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" +
                    html("Table: " + table.title()) + "\"><table>\n<caption>" +
                    html(table.title()) + "</caption>\n<thead><tr>";
  for (std::size_t i = 0; i < table.columns().size(); ++i) {
    const Column& c = table.columns()[i];
    out += "<th scope=\"col\"" + std::string(cell(i)) + ">" + html(c.name);
    if (!c.unit.empty()) out += " <span class=\"unit\">(" + html(c.unit) + ")</span>";
    out += tag(c.provenance) + "</th>";
  }
  out += "</tr></thead>\n<tbody>\n";
  const std::size_t shown = most == 0 ? table.rows().size() : std::min(most, table.rows().size());
  for (std::size_t r = 0; r < shown; ++r) {
    out += "<tr>";
    for (std::size_t i = 0; i < table.columns().size(); ++i)
      out += "<td" + std::string(cell(i)) + ">" +
             html(text_of(table.rows()[r][i], table.columns()[i].digits)) + "</td>";
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n";
  if (shown < table.rows().size())
    out += html(concat("The first ", shown, " of ", table.rows().size(),
                       " rows; all are in the CSV file.")) +
           "\n";
  for (const std::string& note : table.notes()) out += "<p class=\"note\">" + html(note) + "</p>\n";
  return out;
}

std::string study_page(const PageParts& p) {
  const Result& r = *p.result;
  const ReportContext& context = *p.context;
  const auto held =
      std::count_if(r.claims.begin(), r.claims.end(), [](const Claim& c) { return c.holds; });
  std::string out = head(r.title.empty() ? std::string(p.name) : r.title);
  out += "<header>\n";
  if (!context.up.empty()) out += "<p class=\"up\">" + link(context.up, "All studies") + "</p>\n";
  out += "<h1>" + html(r.title.empty() ? p.name : r.title) + "</h1>\n";
  if (!r.question.empty()) out += "<p class=\"question\">" + html(r.question) + "</p>\n";
  out += "<p class=\"facts\">";
  if (!r.claims.empty())
    out += "<b class=\"" +
           std::string(static_cast<std::size_t>(held) == r.claims.size() ? "ok" : "bad") + "\">" +
           std::to_string(held) + " of " + std::to_string(r.claims.size()) +
           (r.claims.size() == 1 ? " claim holds</b> \u00b7 " : " claims hold</b> \u00b7 ");
  out += html(seeds_text(r.seeds)) + " \u00b7 device " + html(context.device) +
         (context.quick ? " \u00b7 quick version" : "") +
         (context.seconds > 0 ? concat(" \u00b7 ", seconds_text(context.seconds)) : "") +
         " \u00b7 " + html(context.program) + "</p>\n</header>\n";

  std::vector<std::pair<const char*, const char*>> contents;
  std::string body;
  const auto add = [&](const char* id, const char* title, const std::string& text) {
    contents.emplace_back(id, title);
    body += section(id, title, text);
  };
  if (!r.claims.empty()) add("claims", "What is claimed, and whether it held", claims(r.claims));
  if (!r.shows.empty()) add("shows", "What it shows", list(r.shows));
  if (!r.does_not_show.empty()) add("limits", "What it does not show", list(r.does_not_show));
  if (!r.skipped.empty()) add("skipped", "What was skipped", list(r.skipped));
  if (!r.method.empty()) add("method", "Method", paragraphs(r.method));
  if (!p.figures.empty()) {
    std::string text;
    for (std::size_t i = 0; i < p.figures.size(); ++i) text += figure(p.figures[i], i + 1, context);
    add("figures", "Figures", text);
  }
  if (!r.tables.empty()) {
    std::string text;
    for (std::size_t i = 0; i < r.tables.size(); ++i)
      text += "<div class=\"table\" id=\"table-" + std::to_string(i + 1) + "\">\n" +
              html_table(r.tables[i]) + "<p class=\"files\">" +
              link(p.table_files[i] + ".csv", "CSV") + " " +
              link(p.table_files[i] + ".json", "JSON") + "</p>\n</div>\n";
    add("tables", "Tables", text);
  }
  std::string again = pre(context.command);
  again += "<p>Everything here as data: " + link("result.json", "result.json") +
           "; settings: " + link("config.toml", "config.toml") +
           "; environment: " + link("environment.json", "environment.json") + ".</p>\n";
  add("again", "Make it again", again);
  add("environment", "Environment", environment(context.environment));
  add("provenance", "Where the numbers come from", kProvenance);

  std::string sources;
  std::string bibliography;
  if (!r.references.empty()) {
    sources += "<ol>\n";
    for (const Reference& reference : r.references) {
      sources += "<li>" + html(sentence(reference)) + "</li>\n";
      bibliography += bibtex(reference) + "\n";
    }
    sources += "</ol>\n";
  }
  bibliography += bibtex(program_reference(context.program));
  sources += details("BibTeX of these, and of this program", pre(bibliography));
  add("references", "References", sources);
  if (!r.tables.empty()) {
    std::string latex;
    for (std::size_t i = 0; i < r.tables.size(); ++i)
      latex += tex_table(r.tables[i], p.table_files[i]) + "\n";
    add("latex", "LaTeX",
        details("The tables", pre(latex)) + "<p>" + link("tables.tex", "tables.tex") + " " +
            link("references.bib", "references.bib") + "</p>\n");
  }

  out += "<nav aria-label=\"Contents\"><ul>";
  for (const auto& [id, title] : contents)
    out += std::string("<li><a href=\"#") + id + "\">" + html(title) + "</a></li>";
  out += "</ul></nav>\n<main>\n" + body + "</main>\n</body>\n</html>\n";
  return out;
}

std::string index_page(const std::vector<Listing>& studies, const ReportContext& context) {
  std::string out = head("Studies of mixed precision");
  out += "<header>\n<h1>Studies of mixed precision</h1>\n<p class=\"facts\">" +
         html(context.program) + " \u00b7 <code>" + html(context.command) +
         "</code></p>\n</header>\n<main>\n<div class=\"scroll\" tabindex=\"0\"><table>\n<caption>"
         "The studies, and whether their claims held</caption>\n<thead><tr>"
         "<th scope=\"col\">study</th><th scope=\"col\">verdict</th>"
         "<th scope=\"col\" class=\"n\">claims held</th>"
         "<th scope=\"col\" class=\"n\">time <span class=\"unit\">(s)</span>" +
         tag(Provenance::measured) + "</th><th scope=\"col\">by</th></tr></thead>\n<tbody>\n";
  for (const Listing& s : studies) {
    const bool done = s.state == Listing::State::done;
    out += "<tr><td>";
    out += done ? link(s.name + "/index.html", s.name) : html(s.name);
    if (!s.title.empty()) out += "<br><span class=\"unit\">" + html(s.title) + "</span>";
    out += "</td><td>";
    if (s.state == Listing::State::failed) {
      out += "<span class=\"bad\">\u2717 failed</span>: " + html(s.reason);
    } else if (s.state == Listing::State::skipped) {
      out += "skipped: " + html(s.reason);
    } else if (s.claims == 0) {
      out += "no claims";
    } else if (s.held == s.claims) {
      out += "<span class=\"ok\">\u2713 all hold</span>";
    } else {
      out += "<span class=\"bad\">\u2717 not all hold</span>: " + html(s.not_held);
    }
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f", s.seconds);
    out += "</td><td class=\"n\">" + (done ? concat(s.held, " of ", s.claims) : std::string("-")) +
           "</td><td class=\"n\">" + (done ? std::string(seconds) : std::string("-")) +
           "</td><td>" + html(s.program) + (s.quick ? ", quick" : "") + "</td></tr>\n";
  }
  out += "</tbody></table></div>\n";
  out += section("environment", "Environment of the last run", environment(context.environment));
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace roundoff::study

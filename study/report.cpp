#include "study/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/io/file.h"
#include "study/citation.h"
#include "study/figure.h"
#include "study/page.h"
#include "study/process.h"
#include "study/text.h"

namespace roundoff::study {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kResult = "result.json";
constexpr const char* kSchema = "roundoff-study-1";
// gnuplot takes a tenth of a second; a figure that takes this long is stuck.
constexpr double kDrawSeconds = 30;

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json numbers(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double v : values) {
    if (std::isfinite(v)) {
      out.push_back(v);
    } else {
      out.push_back(shortest(v));  // "inf", "-inf", "nan"
    }
  }
  return out;
}

constexpr const char* style_name(Series::Style style) {
  constexpr const char* kNames[] = {"line", "dots", "line_and_dots", "bars"};
  return kNames[static_cast<int>(style)];
}

Json figure_json(const Figure& f) {
  Json json;
  json["name"] = f.name;
  json["caption"] = f.caption;
  json["x_label"] = f.x_label;
  json["y_label"] = f.y_label;
  json["log_x"] = f.log_x;
  json["log_y"] = f.log_y;
  json["provenance"] = name(f.provenance);
  if (!f.categories.empty()) json["categories"] = f.categories;
  json["series"] = Json::array();
  for (const Series& s : f.series) {
    Json series = {
        {"name", s.name}, {"style", style_name(s.style)}, {"x", numbers(s.x)}, {"y", numbers(s.y)}};
    if (s.provenance) series["provenance"] = name(*s.provenance);
    if (!s.low.empty()) {
      series["low"] = numbers(s.low);
      series["high"] = numbers(s.high);
    }
    json["series"].push_back(std::move(series));
  }
  return json;
}

std::string unique(std::string file, std::set<std::string>& taken) {
  const std::string stem = file;
  for (int i = 2; !taken.insert(file).second; ++i) file = concat(stem, "-", i);
  return file;
}

// A report's result.json, parsed; null where there is none.
Json read_result(const fs::path& folder) {
  const fs::path file = folder / kResult;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return nullptr;
  try {
    const Bytes bytes = read_file(file, std::uint64_t{256} << 20);
    Json json =
        Json::parse(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    return json.at("schema") == kSchema ? json : Json(nullptr);
  } catch (const std::exception&) {
    return nullptr;
  }
}

// The folder's earlier report goes; what is not of it stays.
void clear(const fs::path& folder) {
  const Json json = read_result(folder);
  if (!json.is_object() || !json.contains("files")) return;
  std::error_code error;
  for (const Json& file : json["files"]) {
    if (!file.is_string()) continue;
    const fs::path path = file.get<std::string>();
    if (path == path.filename() && fs::is_regular_file(folder / path, error))
      fs::remove(folder / path, error);
  }
}

DrawnFigure draw(const fs::path& folder, const Figure& figure, const std::string& file,
                 const ReportContext& context) {
  DrawnFigure drawn{&figure, file, {}, {}};
  if (count_points(figure).drawn == 0) return drawn;
  const ProcessResult result =
      run_process({context.gnuplot, "-d", file + ".gp"}, folder, kDrawSeconds);
  const fs::path svg = folder / (file + ".svg");
  std::error_code error;
  if (!result.found) {
    drawn.problem =
        "gnuplot is not on this machine; Debian has it as gnuplot-nox (apt-get install "
        "gnuplot-nox). Below is what it would have drawn.";
  } else if (result.timed_out) {
    drawn.problem = concat("gnuplot took more than ", kDrawSeconds, " seconds and was ended.");
  } else if (result.status != 0 || !fs::exists(svg, error)) {
    drawn.problem = concat("gnuplot ended with status ", result.status, ": ",
                           clean(result.output).substr(0, 300));
  }
  if (!drawn.problem.empty()) {
    fs::remove(svg, error);
    return drawn;
  }
  const Bytes bytes = read_file(svg);
  drawn.svg.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return drawn;
}

// At most 40 characters, whole words where there are several.
std::string short_name(const std::string& file) {
  constexpr std::size_t kMost = 40;
  if (file.size() <= kMost) return file;
  const std::size_t end = file.rfind('-', kMost);
  return file.substr(0, end == std::string::npos ? kMost : end);
}

}  // namespace

std::string result_json(std::string_view study, const Result& r, const ReportContext& context) {
  Json json;
  json["schema"] = kSchema;
  json["study"] = study;
  json["title"] = r.title;
  json["question"] = r.question;
  json["program"] = context.program;
  json["command"] = context.command;
  json["quick"] = context.quick;
  json["device"] = context.device;
  json["seconds"] = context.seconds;
  json["seconds_provenance"] = "measured";
  json["seeds"] = r.seeds;
  json["n"] = r.seeds.size();
  json["claims"] = Json::array();
  for (const Claim& c : r.claims)
    json["claims"].push_back({{"text", c.text}, {"seen", c.seen}, {"holds", c.holds}});
  json["shows"] = r.shows;
  json["does_not_show"] = r.does_not_show;
  json["skipped"] = r.skipped;
  json["method"] = r.method;
  json["tables"] = Json::array();
  for (const Table& table : r.tables) json["tables"].push_back(Json::parse(table.json()));
  json["figures"] = Json::array();
  for (const Figure& figure : r.figures) json["figures"].push_back(figure_json(figure));
  json["references"] = Json::array();
  for (const Reference& reference : r.references) {
    Json fields = Json::object();
    for (const auto& [key, value] : reference.fields) fields[key] = value;
    json["references"].push_back(
        {{"key", reference.key}, {"kind", reference.kind}, {"fields", std::move(fields)}});
  }
  const Json environment = Json::parse(context.environment, nullptr, false);
  if (!environment.is_discarded()) json["environment"] = environment;
  return dump(json);
}

bool takes_report(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) return true;
  if (!fs::is_directory(status)) return false;
  return fs::is_empty(folder, error) || read_result(folder).is_object();
}

Listing write_report(const fs::path& folder, std::string_view study, const Result& result,
                     const ReportContext& context) {
  if (!takes_report(folder))
    throw UsageError(concat("[report] ", folder.string(),
                            " exists and is not an earlier report; name another folder"));
  for (const Figure& figure : result.figures) check(figure);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_file("report", folder.string(), "the folder cannot be made: ", error.message());
  clear(folder);

  PageParts parts;
  parts.name = study;
  parts.result = &result;
  parts.context = &context;
  // All names first: result.json, which marks the folder as a report's, is written before the rest.
  std::set<std::string> taken{"index", "result", "environment", "config", "tables"};
  for (std::size_t i = 0; i < result.tables.size(); ++i)
    parts.table_files.push_back(unique(
        concat("table-", i + 1, "-", short_name(file_name(result.tables[i].title(), "untitled"))),
        taken));
  std::vector<std::string> figure_files;
  for (const Figure& figure : result.figures)
    figure_files.push_back(unique(file_name(figure.name, "figure"), taken));
  Json json = Json::parse(result_json(study, result, context));
  json["files"] = {"index.html",     "result.json",      "tables.tex",
                   "references.bib", "environment.json", "config.toml"};
  for (const std::string& file : parts.table_files)
    for (const char* extension : {".csv", ".json"}) json["files"].push_back(file + extension);
  for (const std::string& file : figure_files)
    for (const char* extension : {".csv", ".gp", ".svg"}) json["files"].push_back(file + extension);
  write_file_atomically(folder / kResult, dump(json));

  std::string latex = "% Plain LaTeX tables; the text is UTF-8.\n";
  for (std::size_t i = 0; i < result.tables.size(); ++i) {
    const Table& table = result.tables[i];
    const std::string& file = parts.table_files[i];
    write_file_atomically(folder / (file + ".csv"), table.csv());
    write_file_atomically(folder / (file + ".json"), table.json());
    latex += "\n" + tex_table(table, file);
  }
  write_file_atomically(folder / "tables.tex", latex);
  for (std::size_t i = 0; i < result.figures.size(); ++i) {
    Figure figure = result.figures[i];
    write_file_atomically(folder / (figure_files[i] + ".csv"), data_table(figure).csv());
    figure.name = figure_files[i];
    write_file_atomically(folder / (figure_files[i] + ".gp"), gnuplot_script(figure));
    parts.figures.push_back(draw(folder, result.figures[i], figure_files[i], context));
  }
  std::string bibliography;
  for (const Reference& reference : result.references) bibliography += bibtex(reference) + "\n";
  write_file_atomically(folder / "references.bib",
                        bibliography + bibtex(program_reference(context.program)));
  write_file_atomically(folder / "environment.json", context.environment);
  write_file_atomically(folder / "config.toml", context.config);
  // Last: a folder with it is a whole report.
  write_file_atomically(folder / "index.html", study_page(parts));

  Listing listing;
  listing.name = study;
  listing.title = result.title;
  listing.seconds = context.seconds;
  listing.quick = context.quick;
  listing.program = context.program;
  listing.claims = static_cast<std::int64_t>(result.claims.size());
  for (const Claim& c : result.claims) {
    listing.held += c.holds;
    if (!c.holds && listing.not_held.empty()) listing.not_held = c.text;
  }
  return listing;
}

std::optional<Listing> read_listing(const fs::path& folder) {
  const Json json = read_result(folder);
  std::error_code error;
  if (!json.is_object() || !fs::exists(folder / "index.html", error)) return std::nullopt;
  try {
    Listing listing;
    listing.name = json.at("study").get<std::string>();
    listing.title = json.at("title").get<std::string>();
    listing.seconds = json.at("seconds").get<double>();
    listing.quick = json.at("quick").get<bool>();
    listing.program = json.at("program").get<std::string>();
    for (const Json& claim : json.at("claims")) {
      ++listing.claims;
      const bool holds = claim.at("holds").get<bool>();
      listing.held += holds;
      if (!holds && listing.not_held.empty())
        listing.not_held = claim.at("text").get<std::string>();
    }
    return listing;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void write_index(const fs::path& out, const std::vector<Listing>& studies,
                 const ReportContext& context) {
  Json json;
  json["schema"] = "roundoff-studies-1";
  json["program"] = context.program;
  json["command"] = context.command;
  json["studies"] = Json::array();
  for (const Listing& s : studies) {
    constexpr const char* kStates[] = {"done", "failed", "skipped"};
    Json entry = {{"study", s.name}, {"state", kStates[static_cast<int>(s.state)]}};
    if (s.state == Listing::State::done) {
      entry["title"] = s.title;
      entry["held"] = s.held;
      entry["claims"] = s.claims;
      entry["seconds"] = s.seconds;
      entry["quick"] = s.quick;
    } else {
      entry["reason"] = s.reason;
    }
    entry["program"] = s.program;
    json["studies"].push_back(std::move(entry));
  }
  write_file_atomically(out / kStudiesFile, dump(json));
  write_file_atomically(out / "index.html", index_page(studies, context));
}

}  // namespace roundoff::study

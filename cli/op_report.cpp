#include "cli/op_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/io/file.h"

namespace roundoff::cli {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

void put_number(Json& object, const std::string& key, double value) {
  if (std::isfinite(value)) {
    object[key] = value;
    return;
  }
  object[key] = nullptr;
  object[key + "_class"] = shortest(value);
}

// Its names in an earlier run's report; whatever else lies in the folder is not ours.
std::vector<std::string> earlier_names(const fs::path& out) {
  std::vector<std::string> names;
  std::error_code error;
  if (!fs::exists(out / "report.json", error)) return names;
  const Bytes bytes = read_file(out / "report.json", std::uint64_t{1} << 20);
  const Json report =
      Json::parse(reinterpret_cast<const char*>(bytes.data()),
                  reinterpret_cast<const char*>(bytes.data()) + bytes.size(), nullptr, false);
  if (!report.is_object()) return names;
  for (const auto& [key, value] : report.items()) {
    const bool word = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (word) names.push_back(key);
  }
  return names;
}

}  // namespace

std::string worst_element(const Judged& j) {
  return j.comparison.worst < 0 ? "" : element_text(j.comparison.worst, j.actual.shape());
}

Table report_table(std::string_view operation, const std::vector<Judged>& judged) {
  constexpr auto kMeasured = Provenance::measured;
  Table table(std::string(operation) + " against the fp64 oracle",
              {{"array"},
               {"dtype"},
               {"max_abs", kMeasured, 3},
               {"max_rel", kMeasured, 3},
               {"max_ulp", kMeasured, 3},
               {"rms", kMeasured, 3},
               {"rms_rel", kMeasured, 3},
               {"rms_ulp", kMeasured, 3},
               {"worst"},
               {"bound", Provenance::modelled, 3},
               {"bound_kind"},
               {"bound_ratio", kMeasured, 3},
               {"holds"}});
  for (const Judged& j : judged) {
    const Comparison& c = j.comparison;
    table.add_row({j.name, std::string(name(j.actual.dtype())), c.max_abs, c.max_rel, c.max_ulp,
                   c.rms, j.rms_rel, j.rms_ulp, worst_element(j),
                   c.worst < 0 ? Cell() : Cell(c.worst_tolerance), j.kind, c.bound_ratio, c.holds});
  }
  table.add_note(
      "worst: the element closest to its bound, or farthest beyond it; bound: the bound there; "
      "bound_ratio: error over bound there, at most 1 where it holds");
  return table;
}

std::string report_json(const std::vector<Judged>& judged) {
  Json report = Json::object();
  for (const Judged& j : judged) {
    const Comparison& c = j.comparison;
    Json a;
    a["dtype"] = std::string(name(j.actual.dtype()));
    a["shape"] = std::vector<std::int64_t>(j.actual.shape().extents().begin(),
                                           j.actual.shape().extents().end());
    put_number(a, "max_abs", c.max_abs);
    put_number(a, "max_rel", c.max_rel);
    put_number(a, "max_ulp", c.max_ulp);
    put_number(a, "rms", c.rms);
    put_number(a, "rms_rel", j.rms_rel);
    put_number(a, "rms_ulp", j.rms_ulp);
    put_number(a, "bound_ratio", c.bound_ratio);
    a["bound_kind"] = j.kind;
    a["holds"] = c.holds;
    if (c.worst >= 0) {
      Json worst;
      worst["index"] = c.worst;
      put_number(worst, "value", c.worst_actual);
      put_number(worst, "oracle", c.worst_reference);
      put_number(worst, "bound", c.worst_tolerance);
      a["worst"] = std::move(worst);
    }
    a["provenance"] = {{"errors", "measured"}, {"bound", "modelled"}, {"bound_ratio", "measured"}};
    report[j.name] = std::move(a);
  }
  return report.dump(2) + "\n";
}

std::string status_json(bool found_inf, double norm, double clip) {
  Json status;
  status["found_inf"] = found_inf;
  put_number(status, "norm", norm);
  put_number(status, "clip", clip);
  status["provenance"] = "measured";
  return status.dump(2) + "\n";
}

ResultFolder::ResultFolder(fs::path out, bool overwrite, const std::vector<fs::path>& inputs)
    : out_(std::move(out)) {
  std::error_code error;
  const fs::file_status status = fs::status(out_, error);
  if (fs::exists(status) && !fs::is_directory(status))
    throw UsageError(concat("[op] --out ", out_.string(), " exists and is not a folder"));
  if (fs::exists(status) && !overwrite && !fs::is_empty(out_, error))
    throw UsageError(
        concat("[op] --out ", out_.string(), " exists; --overwrite replaces the results in it"));
  for (const fs::path& file : inputs)
    if (!is_input(file)) inputs_.push_back(file);
}

void ResultFolder::check(const std::vector<std::string>& files) const {
  for (const std::string& file : files)
    if (is_input(out_ / file))
      throw UsageError(concat("[op] --out ", out_.string(), ": ", file,
                              " is one of this run's own inputs and would be replaced"));
}

void ResultFolder::open() const {
  std::error_code error;
  fs::create_directories(out_, error);
  if (error) fail_file("op", out_.string(), "the folder cannot be made: ", error.message());
  std::vector<std::string> old{"report.json", "status.json"};
  for (const std::string& name : earlier_names(out_))
    for (const char* end : {".npy", ".oracle.npy", ".bound.npy"}) old.push_back(name + end);
  for (const std::string& file : old)
    if (!is_input(out_ / file)) fs::remove(out_ / file, error);
}

std::vector<SourceFile> ResultFolder::sources() const {
  std::vector<SourceFile> files;
  for (const fs::path& file : inputs_)
    files.push_back({file.filename().string(), sha256_of_file(file)});
  return files;
}

bool ResultFolder::is_input(const fs::path& file) const {
  return std::any_of(inputs_.begin(), inputs_.end(), [&](const fs::path& input) {
    std::error_code error;
    return file == input || fs::equivalent(file, input, error);
  });
}

}  // namespace roundoff::cli

// Writes a study's result for people and for programs, into one folder:
//
//   index.html                      the report: one file, nothing is fetched
//   result.json                     everything in it, machine-readable
//   table-N-TITLE.csv, .json        each table
//   NAME.csv, NAME.gp, NAME.svg     each figure: its data, its gnuplot script, what that draws
//   tables.tex, references.bib      for a paper
//   environment.json, config.toml   what it ran on and with
//
// Needs gnuplot for the figures; where there is none, the report says how to get it and shows their
// data instead.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "study/study.h"

namespace roundoff::study {

// What a report says of the run besides its result.
struct ReportContext {
  std::string program;           // "roundoff 0.1.0 (commit)"
  std::string command;           // a line that makes this report again
  std::string environment = {};  // text of environment.json
  std::string config = {};       // text of config.toml
  double seconds = 0;            // that the study took
  bool quick = false;
  std::string device = "cpu";
  std::string up = {};  // a link to the list of reports; empty: there is none
  std::string gnuplot = "gnuplot";
};

// A study in the list of a folder's reports.
struct Listing {
  enum class State : unsigned char { done, failed, skipped };
  std::string name;
  std::string title;
  State state = State::done;
  std::string reason;  // why it failed or was skipped
  std::int64_t held = 0;
  std::int64_t claims = 0;
  std::string not_held;  // text of the first claim that does not hold
  double seconds = 0;
  bool quick = false;
  std::string program;
};

// Makes `folder` where it is not there, and removes an earlier report in it. `name`: of the study.
// Throws UsageError for a folder that holds something else, FileError where writing fails.
Listing write_report(const std::filesystem::path& folder, std::string_view name,
                     const Result& result, const ReportContext& context);

// Whether write_report would take `folder`: absent, empty, or with an earlier report.
bool takes_report(const std::filesystem::path& folder);

// What the report in a folder says of itself; nothing where there is none that can be read.
std::optional<Listing> read_listing(const std::filesystem::path& folder);

// OUT/index.html: the studies, each with the verdict on its claims and a link to NAME/index.html;
// and the same as OUT/studies.json, which marks the folder.
inline constexpr const char* kStudiesFile = "studies.json";
void write_index(const std::filesystem::path& out, const std::vector<Listing>& studies,
                 const ReportContext& context);

// result.json's text.
std::string result_json(std::string_view name, const Result& result, const ReportContext& context);

}  // namespace roundoff::study

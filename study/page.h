// The HTML of a report. Everything that is put in as text is escaped here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "study/report.h"

namespace roundoff::study {

// A figure as far as it got.
struct DrawnFigure {
  const Figure* figure = nullptr;
  std::string file;     // name of its files, without an extension
  std::string svg;      // empty: not drawn
  std::string problem;  // then why; empty where there was nothing to draw
};

struct PageParts {
  std::string_view name;
  const Result* result = nullptr;
  const ReportContext* context = nullptr;
  std::vector<DrawnFigure> figures;
  std::vector<std::string> table_files;  // without an extension, one a table
};

// A whole document: style inline, no script, nothing fetched.
std::string study_page(const PageParts& parts);
std::string index_page(const std::vector<Listing>& studies, const ReportContext& context);

// One table: a caption, names with unit and provenance, rows, notes; scrolls sideways by itself.
// `most` rows are shown, 0: all.
std::string html_table(const Table& table, std::size_t most = 0);

}  // namespace roundoff::study

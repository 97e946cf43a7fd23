#include "cli/bench_report.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace roundoff::cli {

namespace {

using bench::Metric;
using bench::Report;
using bench::Row;

Cell cell_of(const Metric& m) {
  return std::visit([](const auto& value) { return Cell(value); }, m.value);
}
Cell text_or_none(const std::string& text) { return text.empty() ? Cell() : Cell(text); }

// The columns of some rows' metrics, in the order in which they first appear.
template <class Wanted>
std::vector<Column> columns_of(const std::vector<const Row*>& rows, Wanted wanted) {
  std::vector<Column> columns;
  for (const Row* row : rows)
    for (const Metric& m : row->metrics) {
      if (!wanted(m)) continue;
      const auto known = std::find_if(columns.begin(), columns.end(),
                                      [&](const Column& c) { return c.name == m.name; });
      if (known == columns.end()) {
        columns.push_back({m.name, m.provenance, m.digits, m.unit});
        continue;
      }
      ROUNDOFF_CHECK(known->provenance == m.provenance, "bench", "'", m.name, "' is ",
                     name(m.provenance), " in one row and ", name(known->provenance),
                     " in another; they never share a column");
    }
  return columns;
}

void add_metrics(std::vector<Cell>& cells, const Row& row, const std::vector<Column>& columns,
                 std::size_t first) {
  for (std::size_t i = first; i < columns.size(); ++i) {
    const Metric* m = row.find(columns[i].name, columns[i].provenance);
    cells.push_back(m == nullptr ? Cell() : cell_of(*m));
  }
}

std::string verdict_of(const Row& row) {
  return !row.refusal.empty() ? "not taken" : row.broken ? "WRONG" : "verified";
}

std::string what_of(const Row& row) {
  return concat(row.operation, ' ', row.problem, ' ', row.dtype,
                row.kernel.empty() ? "" : concat(", ", row.kernel));
}

}  // namespace

Table bench_table(const std::string& title, const Report& report) {
  std::vector<const Row*> rows;
  for (const Row& row : report.rows) rows.push_back(&row);
  std::vector<Column> columns{{"operation"},
                              {"pass"},
                              {"problem"},
                              {"dtype"},
                              {"out_dtype"},
                              {"kernel"},
                              {"verdict"},
                              {"verified"},
                              {"sample"},
                              {"refusal"},
                              {"flops", Provenance::modelled},
                              {"min_bytes", Provenance::modelled, 6, "B"}};
  const std::size_t first = columns.size();
  for (Column& c : columns_of(rows, [](const Metric&) { return true; }))
    columns.push_back(std::move(c));
  Table table(title, columns);
  for (const Row& row : report.rows) {
    std::vector<Cell> cells{row.operation,
                            row.pass,
                            row.problem,
                            row.dtype,
                            row.out_dtype,
                            text_or_none(row.kernel),
                            verdict_of(row),
                            text_or_none(row.verified),
                            text_or_none(row.sample),
                            text_or_none(row.refusal),
                            row.flops,
                            row.min_bytes};
    add_metrics(cells, row, columns, first);
    table.add_row(std::move(cells));
  }
  for (const std::string& note : report.notes) table.add_note(note);
  return table;
}

std::vector<Table> bench_text(const std::string& title, const Report& report) {
  std::vector<Table> tables;
  std::vector<std::pair<std::string, std::vector<const Row*>>> groups;
  for (const Row& row : report.rows) {
    const std::string key = concat(row.operation, ", ", row.pass);
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == key; });
    if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
    group->second.push_back(&row);
  }
  for (const auto& [key, rows] : groups) {
    const bool kernels =
        std::any_of(rows.begin(), rows.end(), [](const Row* row) { return !row->kernel.empty(); });
    // A table for each kind of figure, and for each part.
    std::vector<std::pair<std::string, Provenance>> kinds;
    for (const Row* row : rows)
      for (const Metric& m : row->metrics) {
        const std::pair kind{m.part, m.part.empty() ? m.provenance : Provenance::none};
        if (!m.detail && std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
          kinds.push_back(kind);
      }
    for (const auto& entry : kinds) {
      const std::vector<Column> figures = columns_of(rows, [&](const Metric& m) {
        return !m.detail && m.part == entry.first &&
               (!m.part.empty() || m.provenance == entry.second);
      });
      std::vector<Column> columns{{key}, {"dtype"}};
      if (kernels) columns.push_back({"kernel"});
      const std::size_t first = columns.size();
      columns.insert(columns.end(), figures.begin(), figures.end());
      Table table(title, columns);
      for (const Row* row : rows) {
        if (row->broken || !row->refusal.empty()) continue;
        std::vector<Cell> cells{row->problem, row->dtype == row->out_dtype
                                                  ? row->dtype
                                                  : concat(row->dtype, "->", row->out_dtype)};
        if (kernels) cells.push_back(text_or_none(row->kernel));
        add_metrics(cells, *row, columns, first);
        table.add_row(std::move(cells));
      }
      tables.push_back(std::move(table));
    }
  }
  if (tables.empty()) tables.emplace_back(title, std::vector<Column>{{"nothing was reported"}});
  Table& last = tables.back();
  for (const Row& row : report.rows) {
    const std::string what = what_of(row);
    if (!row.refusal.empty()) {
      last.add_note(concat(what, ": does not take this: ", row.refusal));
      continue;
    }
    last.add_note(concat(what, row.broken ? ": WRONG: " : ": verified: ", row.verified));
    if (!row.sample.empty()) last.add_note(concat(what, ": ran ", row.sample));
  }
  for (const std::string& note : report.notes) last.add_note(note);
  return tables;
}

}  // namespace roundoff::cli

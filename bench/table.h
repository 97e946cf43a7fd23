// Tables of results: aligned text, CSV and JSON, every number with where it comes from.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bench/provenance.h"

namespace roundoff {

struct Column {
  std::string name;  // as scripts read it
  Provenance provenance = Provenance::none;
  int digits = 6;  // significant digits of floating-point numbers in text; 0: as many as it takes
  std::string unit = {};
};

// Empty, text, number, truth value.
using Cell = std::variant<std::monostate, std::string, double, std::int64_t, bool>;

// The shortest decimal that reads back as `value`; "inf", "-inf" and "nan".
std::string shortest(double value);
// A cell as print() shows it; `digits` as in Column.
std::string text_of(const Cell& cell, int digits);

class Table {
 public:
  Table(std::string title, std::vector<Column> columns);

  // Throws unless there is a cell a column.
  void add_row(std::vector<Cell> cells);
  // A line under the table: what it does not show.
  void add_note(std::string note) { notes_.push_back(std::move(note)); }

  const std::string& title() const { return title_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<std::vector<Cell>>& rows() const { return rows_; }

  // Columns padded with spaces, numbers to the right; the provenance under each name, or once below
  // where all numbers share it. A table wider than `width` columns is printed as a block a row
  // instead; 0 is any width.
  void print(std::ostream& out, int width = 0) const;
  // RFC 4180; a header of "name (unit) [provenance]", as far as a column has them; numbers in
  // full.
  std::string csv() const;
  // {"table", "columns": [{"name", "provenance", "unit"}], "rows": [{...}], "notes": [...]}; a
  // non-finite number is null beside "name_class": "inf", "-inf" or "nan".
  std::string json() const;

 private:
  using Lines = std::vector<std::vector<std::string>>;  // header, tags if any, rows
  void print_grid(std::ostream& out, const Lines& lines, const std::vector<std::size_t>& width,
                  std::size_t head) const;
  void print_blocks(std::ostream& out, const Lines& lines, std::size_t head) const;

  std::string title_;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
  std::vector<std::string> notes_;
};

}  // namespace roundoff

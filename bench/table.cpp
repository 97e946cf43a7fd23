#include "bench/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>

#include "kernels/base/check.h"

namespace roundoff {

namespace {

std::string non_finite(double value) {
  return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
}

// Columns that a terminal uses: continuation bytes of UTF-8 take none.
std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string out = "\"";
  for (const char c : field) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string with_unit(const Column& column) {
  return column.unit.empty() ? column.name : concat(column.name, " (", column.unit, ")");
}

}  // namespace

std::string shortest(double value) {
  if (!std::isfinite(value)) return non_finite(value);
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, result.ptr};
}

std::string text_of(const Cell& cell, int digits) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* number = std::get_if<double>(&cell)) {
    if (digits == 0 || !std::isfinite(*number)) return shortest(*number);
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, "%.*g", digits, *number);
    return buffer;
  }
  if (const auto* number = std::get_if<std::int64_t>(&cell)) return std::to_string(*number);
  if (const auto* truth = std::get_if<bool>(&cell)) return *truth ? "yes" : "no";
  return "-";
}

Table::Table(std::string title, std::vector<Column> columns)
    : title_(std::move(title)), columns_(std::move(columns)) {}

void Table::add_row(std::vector<Cell> cells) {
  ROUNDOFF_CHECK(cells.size() == columns_.size(), "table", cells.size(), " cells for ",
                 columns_.size(), " columns");
  rows_.push_back(std::move(cells));
}

void Table::print(std::ostream& out, int limit) const {
  std::vector<Provenance> kinds;
  for (const Column& c : columns_)
    if (c.provenance != Provenance::none &&
        std::find(kinds.begin(), kinds.end(), c.provenance) == kinds.end())
      kinds.push_back(c.provenance);

  Lines lines(1);
  for (const Column& c : columns_) lines[0].push_back(with_unit(c));
  if (kinds.size() > 1) {
    lines.emplace_back();
    for (const Column& c : columns_) lines[1].emplace_back(name(c.provenance));
  }
  const std::size_t head = lines.size();
  for (const auto& row : rows_) {
    lines.emplace_back();
    for (std::size_t i = 0; i < row.size(); ++i)
      lines.back().push_back(text_of(row[i], columns_[i].digits));
  }
  std::vector<std::size_t> width(columns_.size(), 0);
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i)
      width[i] = std::max(width[i], display_width(line[i]));
  std::size_t total = 0;
  for (const std::size_t w : width) total += w + 2;
  if (limit > 0 && total > static_cast<std::size_t>(limit) + 2) {
    print_blocks(out, lines, head);
  } else {
    print_grid(out, lines, width, head);
  }
  if (kinds.size() == 1) out << "numbers: " << name(kinds[0]) << '\n';
  for (const std::string& note : notes_) out << note << '\n';
}

void Table::print_grid(std::ostream& out, const Lines& lines, const std::vector<std::size_t>& width,
                       std::size_t head) const {
  std::vector<bool> numeric(columns_.size(), true);
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i)
      if (std::holds_alternative<std::string>(row[i]) || std::holds_alternative<bool>(row[i]))
        numeric[i] = false;
  std::size_t total = 0;
  for (const std::size_t w : width) total += w + 2;
  for (std::size_t l = 0; l < lines.size(); ++l) {
    std::string text;
    for (std::size_t i = 0; i < lines[l].size(); ++i) {
      const std::string pad(width[i] - display_width(lines[l][i]), ' ');
      if (i != 0) text += "  ";
      text += numeric[i] ? pad + lines[l][i] : lines[l][i] + pad;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out << text << '\n';
    if (l + 1 == head && total > 2) out << std::string(total - 2, '-') << '\n';
  }
}

void Table::print_blocks(std::ostream& out, const Lines& lines, std::size_t head) const {
  std::size_t width = 0;
  for (const std::string& title : lines[0]) width = std::max(width, display_width(title));
  for (std::size_t l = head; l < lines.size(); ++l) {
    if (l != head) out << '\n';
    for (std::size_t i = 0; i < lines[l].size(); ++i) {
      out << lines[0][i] << std::string(width - display_width(lines[0][i]) + 2, ' ') << lines[l][i];
      if (head > 1 && !lines[1][i].empty()) out << "  [" << lines[1][i] << ']';
      out << '\n';
    }
  }
}

std::string Table::csv() const {
  std::string out;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& c = columns_[i];
    if (i != 0) out += ',';
    out += quoted(c.provenance == Provenance::none
                      ? with_unit(c)
                      : concat(with_unit(c), " [", name(c.provenance), "]"));
  }
  out += "\r\n";
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i != 0) out += ',';
      if (!std::holds_alternative<std::monostate>(row[i])) out += quoted(text_of(row[i], 0));
    }
    out += "\r\n";
  }
  return out;
}

std::string Table::json() const {
  nlohmann::ordered_json document;
  document["table"] = title_;
  for (const Column& c : columns_) {
    nlohmann::ordered_json column = {{"name", c.name}};
    if (c.provenance != Provenance::none) column["provenance"] = name(c.provenance);
    if (!c.unit.empty()) column["unit"] = c.unit;
    document["columns"].push_back(std::move(column));
  }
  document["rows"] = nlohmann::ordered_json::array();
  for (const auto& row : rows_) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string& key = columns_[i].name;
      if (const auto* text = std::get_if<std::string>(&row[i])) {
        object[key] = *text;
      } else if (const auto* number = std::get_if<double>(&row[i])) {
        if (std::isfinite(*number)) {
          object[key] = *number;
        } else {
          object[key] = nullptr;
          object[key + "_class"] = non_finite(*number);
        }
      } else if (const auto* whole = std::get_if<std::int64_t>(&row[i])) {
        object[key] = *whole;
      } else if (const auto* truth = std::get_if<bool>(&row[i])) {
        object[key] = *truth;
      } else {
        object[key] = nullptr;
      }
    }
    document["rows"].push_back(std::move(object));
  }
  if (!notes_.empty()) document["notes"] = notes_;
  // Text from the command line need not be UTF-8.
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace roundoff

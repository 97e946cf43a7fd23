#include "study/citation.h"

#include <algorithm>
#include <cctype>

#include "study/text.h"

namespace roundoff::study {

namespace {

// What a key or an entry's kind may consist of.
std::string word(const std::string& text, const char* fallback) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == ':' || c == '_')
      out += c;
  return out.empty() ? fallback : out;
}

// BibTeX's accents as Unicode's combining characters, and no braces.
std::string without_tex(const std::string& text) {
  constexpr std::pair<char, const char*> kAccents[] = {
      {'\'', "\u0301"}, {'`', "\u0300"}, {'^', "\u0302"}, {'"', "\u0308"}, {'~', "\u0303"}};
  std::string out;
  const char* accent = nullptr;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '}') continue;
    if (text[i] == '\\' && i + 1 < text.size()) {
      const auto* found = std::find_if(std::begin(kAccents), std::end(kAccents),
                                       [&](const auto& a) { return a.first == text[i + 1]; });
      if (found != std::end(kAccents)) {
        accent = found->second;
        ++i;
        continue;
      }
    }
    out += text[i];
    if (accent != nullptr) out += accent;
    accent = nullptr;
  }
  return out;
}

const std::string* find(const Reference& reference, const char* field) {
  for (const auto& [name, value] : reference.fields)
    if (name == field) return &value;
  return nullptr;
}

}  // namespace

std::string bibtex(const Reference& reference) {
  std::string out =
      concat("@", word(reference.kind, "misc"), "{", word(reference.key, "reference"));
  for (const auto& [name, value] : reference.fields)
    out += concat(",\n  ", word(name, "note"), " = {", bib(value), "}");
  return out + "\n}\n";
}

Reference mixed_precision_training() {
  return {"micikevicius2018mixed",
          "inproceedings",
          {{"author",
            "Micikevicius, Paulius and Narang, Sharan and Alben, Jonah and Diamos, Gregory and "
            "Elsen, Erich and Garcia, David and Ginsburg, Boris and Houston, Michael and Kuchaiev, "
            "Oleksii and Venkatesh, Ganesh and Wu, Hao"},
           {"title", "Mixed Precision Training"},
           {"booktitle", "International Conference on Learning Representations"},
           {"year", "2018"}}};
}

Reference program_reference(const std::string& program) {
  return {"roundoff",
          "misc",
          {{"author", "{Roundoff developers}"},
           {"title", "{Roundoff}: an engine for mixed-precision numerics"},
           {"note", program}}};
}

std::string sentence(const Reference& reference) {
  std::string out;
  for (const char* field : {"author", "title", "journal", "booktitle", "publisher", "howpublished",
                            "volume", "pages", "year", "note", "doi", "url"}) {
    const std::string* value = find(reference, field);
    if (value == nullptr || value->empty()) continue;
    std::string part = without_tex(*value);
    const std::string name = field;
    if (name == "volume") part.insert(0, "vol. ");
    if (name == "pages") part.insert(0, "pp. ");
    if (name == "doi") part.insert(0, "doi:");
    out += (out.empty() ? "" : ", ") + part;
  }
  return out.empty() ? reference.key : out + ".";
}

std::string tex_table(const Table& table, const std::string& label) {
  std::vector<bool> numeric(table.columns().size(), true);
  for (const auto& row : table.rows())
    for (std::size_t i = 0; i < row.size(); ++i)
      if (std::holds_alternative<std::string>(row[i]) || std::holds_alternative<bool>(row[i]))
        numeric[i] = false;
  std::vector<Provenance> kinds;
  for (const Column& c : table.columns())
    if (c.provenance != Provenance::none &&
        std::find(kinds.begin(), kinds.end(), c.provenance) == kinds.end())
      kinds.push_back(c.provenance);

  std::string out = "\\begin{table}\n\\centering\n\\caption{" + tex(table.title());
  if (kinds.size() == 1) out += " (" + tex(name(kinds[0])) + ")";
  out += "}\n\\label{tab:" + label + "}\n\\begin{tabular}{";
  for (const bool right : numeric) out += right ? 'r' : 'l';
  out += "}\n\\hline\n";
  const auto line = [&](auto&& cell) {
    for (std::size_t i = 0; i < table.columns().size(); ++i)
      out += (i == 0 ? "" : " & ") + tex(cell(i));
    out += " \\\\\n";
  };
  line([&](std::size_t i) {
    const Column& c = table.columns()[i];
    return c.unit.empty() ? c.name : c.name + " (" + c.unit + ")";
  });
  if (kinds.size() > 1)
    line([&](std::size_t i) { return std::string(name(table.columns()[i].provenance)); });
  out += "\\hline\n";
  for (const auto& row : table.rows())
    line([&](std::size_t i) { return text_of(row[i], table.columns()[i].digits); });
  out += "\\hline\n\\end{tabular}\n";
  for (const std::string& note : table.notes()) out += "\n{\\footnotesize " + tex(note) + "}\n";
  return out + "\\end{table}\n";
}

}  // namespace roundoff::study

// References and tables in the forms that papers take: BibTeX and plain LaTeX.
#pragma once

#include <string>

#include "study/study.h"

namespace roundoff::study {

// One BibTeX entry; key and kind are reduced to what BibTeX takes.
std::string bibtex(const Reference& reference);
// Micikevicius et al. 2018, which most studies start from.
Reference mixed_precision_training();
// This program, in the version that ran.
Reference program_reference(const std::string& program);
// For a list of references: authors, title, where, year. Plain text.
std::string sentence(const Reference& reference);

// A table environment without any package: caption, label, a row of names, units and provenance
// where columns differ in it, \hline. `label` is made of letters, digits and hyphens.
std::string tex_table(const Table& table, const std::string& label);

}  // namespace roundoff::study

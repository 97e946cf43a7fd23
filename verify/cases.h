// All cases: the lists of verify/cases/, and one drawn at random.
#pragma once

#include <span>

#include "verify/case.h"

namespace roundoff {

enum class CaseSet : unsigned char { quick, full };

// Of one operation of ops/run.h, or of all where it is empty. Full holds what quick holds.
std::vector<Case> list_cases(CaseSet set, std::string_view operation = {});

// A case of the operation with shapes and parameters drawn at random; the same for the same draw.
Case draw_case(std::string_view operation, CaseDraw& draw);

}  // namespace roundoff

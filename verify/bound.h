// All error bounds, one header a family; verify/bound/base.h says what they have in common.
#pragma once

#include "verify/bound/base.h"
#include "verify/bound/elementwise.h"
#include "verify/bound/linear.h"
#include "verify/bound/loss.h"
#include "verify/bound/norm.h"
#include "verify/bound/reduce.h"
#include "verify/bound/softmax.h"
#include "verify/bound/step.h"
#include "verify/compare.h"
#include "verify/ladder.h"

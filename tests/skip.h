// A test that cannot run here (no GPU, no data set) says so, and is never counted as passed.
#pragma once

#include <string_view>

// Prints `reason`; the test program then ends with status 77, which CTest reports as skipped.
void skip_test(std::string_view reason);

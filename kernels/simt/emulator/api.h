// Symbols of the emulator's shared library. State stands in one place: programs, the fast kernels
// and the instrumented kernels' library all use this one.
#pragma once

#define ROUNDOFF_SIMT_API __attribute__((visibility("default")))
// The sanitizer's hooks must not see what the emulator itself does inside a kernel's code.
#define ROUNDOFF_UNINSTRUMENTED __attribute__((no_sanitize("thread")))

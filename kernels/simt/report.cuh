// Bad data that a kernel met: the first report stands (kernels/base/device_error.h).
#pragma once

#include "kernels/base/device_error.h"
#include "kernels/simt/simt.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  ROUNDOFF_DEVICE void report(DeviceErrors * errors, DeviceError code, std::int64_t where,
                              std::int64_t value, std::int32_t detail) {
    if (errors == nullptr) return;
    if (atomicCAS(&errors->code, std::int32_t{0}, static_cast<std::int32_t>(code)) != 0) return;
    errors->detail = detail;
    errors->where = where;
    errors->value = value;
  }
}  // namespace

}  // namespace roundoff

#include "kernels/base/device_error.h"

#include <bit>

namespace roundoff {

std::string describe(const DeviceErrors& r) {
  switch (static_cast<DeviceError>(r.code)) {
    case DeviceError::none:
      return "no error";
    case DeviceError::cross_entropy_label:
      return concat("[cross_entropy] row ", r.where, " has label ", r.value, ", expected 0 to ",
                    r.detail - 1, " or ignore_index");
    case DeviceError::cross_entropy_weight:
      return concat("[cross_entropy] weight of class ", r.where, " is ",
                    std::bit_cast<double>(r.value), ", expected a finite value >= 0");
    case DeviceError::embedding_index:
      return concat("[embedding] index ", r.value, " at position ", r.where, ", expected in [0, ",
                    r.detail, ")");
    case DeviceError::embedding_backward_index:
      return concat("[embedding_backward] index ", r.value, " at position ", r.where,
                    ", expected in [0, ", r.detail, ")");
    case DeviceError::max_index:
      return concat("[max] index ", r.value, " of output ", r.where, " is not one of its terms");
  }
  return concat("[device] a kernel reported an unknown error ", r.code, " at ", r.where, ", value ",
                r.value);
}

DeviceDataError::DeviceDataError(const DeviceErrors& report)
    : Error(describe(report)), report_(report) {}

}  // namespace roundoff

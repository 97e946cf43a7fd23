// Bad data that only kernels can see, as they report it (kernels/base/target.h: DeviceErrors), and
// as the host says it. The reference path throws for the same data before it computes anything; a
// kernel computes on with a harmless substitute, and the step that it spoiled is not to be used.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/check.h"
#include "kernels/base/target.h"

namespace roundoff {

enum class DeviceError : std::int32_t {
  none = 0,
  // where: row, value: the label, detail: number of classes.
  cross_entropy_label = 1,
  // where: class, value: the weight's bits as fp64.
  cross_entropy_weight = 2,
  // where: position, value: the index, detail: rows of the table.
  embedding_index = 3,
  embedding_backward_index = 4,
  // where: output, value: the index.
  max_index = 5,
};

// What a kernel reported, as an error of the operation that it belongs to.
class DeviceDataError : public Error {
 public:
  explicit DeviceDataError(const DeviceErrors& report);
  const DeviceErrors& report() const { return report_; }

 private:
  DeviceErrors report_;
};

// "[cross_entropy] row 3 has label 12, expected 0 to 9", as the reference path puts it.
std::string describe(const DeviceErrors& report);

}  // namespace roundoff

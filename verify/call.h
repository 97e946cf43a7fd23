// One named call and its arrays as numbers: what verify/reference.cpp and the files beside it
// share. Internal to the library.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "verify/reference.h"

namespace roundoff::detail {

using oracle::In;
using oracle::Values;

class Call {
 public:
  Call(const OpParameters& parameters, const NamedTensors& inputs, const Tensor& dy,
       const JudgedArithmetic& judged);

  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }
  // Empty for an input that is absent.
  const Values& of(std::string_view name) const {
    static const Values kNone;
    const auto found = values_.find(name);
    return found == values_.end() ? kNone : found->second;
  }
  const Shape& shape(std::string_view name) const { return inputs_.find(name)->second.shape(); }
  DType dtype(std::string_view name) const { return inputs_.find(name)->second.dtype(); }
  const NamedTensors& inputs() const { return inputs_; }
  std::string_view name() const { return p.signature().name; }
  Format saved() const { return format_of(judged.saved); }

  const OpParameters& p;
  const JudgedArithmetic& judged;
  Arithmetic plain;     // of everything else than
  Arithmetic sums;      // sums of operands
  Arithmetic products;  // products of operands: as sums, or on a device's tensor cores

 private:
  const NamedTensors& inputs_;
  std::map<std::string, Values, std::less<>> values_;
};

// |x|, raised where tensor cores would align it: verify/bound/linear.h.
Values magnitudes(In x, const Arithmetic& a);

// scale times the sums of the elements whose index is the same modulo `columns`: sums of products
// with 1, on tensor cores too.
Bound column_sums(In x, std::int64_t columns, double scale, const Arithmetic& a);

// verify/reference_select.cpp: operations that pick, move and scale values.
NamedBounds dropout_bounds(const Call& call, Pass pass);
NamedBounds embedding_bounds(const Call& call, Pass pass);
NamedBounds shape_bounds(const Call& call, Pass pass);  // reshape, flatten, transpose
NamedBounds unscale_clip_bounds(const Call& call);

}  // namespace roundoff::detail

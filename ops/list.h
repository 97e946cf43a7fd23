// Every operation, once: its name and how autocast treats its inputs, the one table that autocast
// reads. ops/run.h adds how a name is run on named arrays.
#pragma once

#include <string_view>

#include "engine/autocast.h"

namespace roundoff {

struct OpInfo {
  std::string_view name;
  CastClass cast_class;
};

inline constexpr OpInfo kOps[] = {
    {"add", CastClass::widest},        {"avg_pool2d", CastClass::widest},
    {"batch_norm", CastClass::fp32},   {"bce_with_logits", CastClass::fp32},
    {"conv2d", CastClass::low},        {"cross_entropy", CastClass::fp32},
    {"div", CastClass::widest},        {"dropout", CastClass::widest},
    {"embedding", CastClass::widest},  {"exp", CastClass::fp32},
    {"flatten", CastClass::widest},    {"gelu", CastClass::widest},
    {"layer_norm", CastClass::fp32},   {"linear", CastClass::low},
    {"log", CastClass::fp32},          {"log_softmax", CastClass::fp32},
    {"matmul", CastClass::low},        {"max", CastClass::fp32},
    {"max_pool2d", CastClass::widest}, {"mean", CastClass::fp32},
    {"mse", CastClass::fp32},          {"mul", CastClass::widest},
    {"norm", CastClass::fp32},         {"relu", CastClass::widest},
    {"reshape", CastClass::widest},    {"sigmoid", CastClass::widest},
    {"softmax", CastClass::fp32},      {"sub", CastClass::widest},
    {"sum", CastClass::fp32},          {"tanh", CastClass::widest},
    {"transpose", CastClass::widest},
};

// The class of an operation of the list; does not compile for a name that is not there.
consteval CastClass cast_class_of(std::string_view name) {
  for (const OpInfo& op : kOps)
    if (op.name == name) return op.cast_class;
  throw "the operation is not in ops/list.h";
}

}  // namespace roundoff

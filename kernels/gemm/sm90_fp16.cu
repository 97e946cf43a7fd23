// The kernels of sm90.cuh with fp16 operands.
#include "kernels/gemm/sm90_launch.cuh"

namespace roundoff {

ROUNDOFF_SM90_OF(, Half);

}  // namespace roundoff

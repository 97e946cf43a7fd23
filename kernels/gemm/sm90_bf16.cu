// The kernels of sm90.cuh with bf16 operands.
#include "kernels/gemm/sm90_launch.cuh"

namespace roundoff {

ROUNDOFF_SM90_OF(, BFloat16);

}  // namespace roundoff

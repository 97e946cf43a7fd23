// The kernels of sm90.cuh with tf32 operands.
#include "kernels/gemm/sm90_launch.cuh"

namespace roundoff {

ROUNDOFF_SM90_OF(, Tf32);

}  // namespace roundoff

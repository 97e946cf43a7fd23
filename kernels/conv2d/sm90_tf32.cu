// The kernels of sm90.cuh with tf32 operands.
#include "kernels/conv2d/sm90.cuh"

namespace roundoff {

ROUNDOFF_CONV2D_SM90_OF(, Tf32);

}  // namespace roundoff

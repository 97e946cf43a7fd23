// Convolution on sm_90a (sm90.cuh): which kernel runs.
#include "kernels/conv2d/sm90.cuh"

namespace roundoff {

ROUNDOFF_CONV2D_SM90_OF(extern, Half);
ROUNDOFF_CONV2D_SM90_OF(extern, BFloat16);
ROUNDOFF_CONV2D_SM90_OF(extern, Tf32);

template <DeviceTarget T>
void launch_conv2d_sm90(T target, ConvPass pass, const ProductProblem& p, const Conv2dShape& z,
                        const Conv2dParams& params, const ConstView& images, const ConstView& other,
                        const ProductOutput& out, Scratch& scratch, const Sm90Options& options) {
  const std::string why = conv2d_sm90_refuses(pass, p, z, params, images, other);
  ROUNDOFF_CHECK(why.empty(), p.name, why);
  if (p.size.m == 0 || p.size.n == 0 || p.size.results == 0) return;
  Sm90Convolution c{pass, p, z, params, images, other, options};
  if (c.options.tile == Sm90Tile::automatic) c.options.tile = sm90_detail::tile_of(p);
  switch (images.dtype) {
    case DType::fp16:
      return launch_conv2d_sm90_of<Half>(target, c, out, scratch);
    case DType::bf16:
      return launch_conv2d_sm90_of<BFloat16>(target, c, out, scratch);
    default:
      return launch_conv2d_sm90_of<Tf32>(target, c, out, scratch);
  }
}

template void launch_conv2d_sm90(Target, ConvPass, const ProductProblem&, const Conv2dShape&,
                                 const Conv2dParams&, const ConstView&, const ConstView&,
                                 const ProductOutput&, Scratch&, const Sm90Options&);

}  // namespace roundoff

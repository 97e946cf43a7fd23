// Products by warp-specialised kernels (sm90.cuh): which tile a product is cut into.
#include "kernels/gemm/sm90_launch.cuh"

namespace roundoff {

ROUNDOFF_SM90_OF(extern, Half);
ROUNDOFF_SM90_OF(extern, BFloat16);
ROUNDOFF_SM90_OF(extern, Tf32);

namespace {

template <DeviceTarget T>
void launch_specialised(T target, const ProductProblem& p, const MatrixSource& a,
                        const MatrixSource& b, const ProductOutput& out, Scratch& scratch,
                        Sm90Options options, bool ping_pong) {
  const std::string why = sm90_refuses(p, a, b, out);
  ROUNDOFF_CHECK(why.empty(), p.name, why);
  if (p.size.m == 0 || p.size.n == 0 || p.size.results == 0) return;
  if (options.tile == Sm90Tile::automatic) options.tile = sm90_detail::tile_of(p);
  switch (a.dtype) {
    case DType::fp16:
      return launch_sm90_of<Half>(target, p, a, b, out, scratch, options, ping_pong);
    case DType::bf16:
      return launch_sm90_of<BFloat16>(target, p, a, b, out, scratch, options, ping_pong);
    default:
      return launch_sm90_of<Tf32>(target, p, a, b, out, scratch, options, ping_pong);
  }
}

}  // namespace

template <DeviceTarget T>
void launch_sm90(T target, const ProductProblem& p, const MatrixSource& a, const MatrixSource& b,
                 const ProductOutput& out, Scratch& scratch, const Sm90Options& options) {
  launch_specialised(target, p, a, b, out, scratch, options, false);
}
template <DeviceTarget T>
void launch_ping_pong(T target, const ProductProblem& p, const MatrixSource& a,
                      const MatrixSource& b, const ProductOutput& out, Scratch& scratch,
                      const Sm90Options& options) {
  launch_specialised(target, p, a, b, out, scratch, options, true);
}

template void launch_sm90(Target, const ProductProblem&, const MatrixSource&, const MatrixSource&,
                          const ProductOutput&, Scratch&, const Sm90Options&);
template void launch_ping_pong(Target, const ProductProblem&, const MatrixSource&,
                               const MatrixSource&, const ProductOutput&, Scratch&,
                               const Sm90Options&);

}  // namespace roundoff

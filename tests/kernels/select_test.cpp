// The choice of a product's kernel, tile and cut, as tables.
#include "kernels/gemm/select.h"

#include <doctest/doctest.h>

using namespace roundoff;

namespace {

ProductProblem problem(unsigned m, unsigned n, unsigned depth,
                       MmaOperand operand = MmaOperand::fp16) {
  ProductProblem p;
  p.size = {.m = m, .n = n, .depth = depth, .terms = 1, .results = 1};
  p.operand = operand;
  return p;
}
ProductTraits traits(Architecture architecture, const char* sm90 = "") {
  return {.architecture = architecture,
          .a = DType::fp16,
          .b = DType::fp16,
          .chunked = true,
          .sm90 = sm90};
}

}  // namespace

TEST_CASE("the kernel of a product") {
  struct Row {
    ProductProblem p;
    ProductTraits t;
    ProductKernel want;
  };
  ProductProblem wide = problem(512, 512, 512);
  wide.wide = true;
  const Row rows[] = {
      {problem(4096, 4096, 4096), traits(Architecture::any), ProductKernel::sm80},
      {problem(4096, 4096, 4096), traits(Architecture::sm_90a), ProductKernel::sm90},
      {problem(4096, 4096, 512), traits(Architecture::sm_90a), ProductKernel::ping_pong},
      // What TMA cannot read, and what would leave its tiles mostly empty.
      {problem(4096, 4096, 4096), traits(Architecture::sm_90a, "no"), ProductKernel::sm80},
      {problem(16, 4096, 4096), traits(Architecture::sm_90a), ProductKernel::sm80},
      {problem(4096, 3, 4096), traits(Architecture::sm_90a), ProductKernel::sm80},
      {problem(4096, 4096, 16), traits(Architecture::sm_90a), ProductKernel::sm80},
      {problem(16, 16, 576), traits(Architecture::any), ProductKernel::sm80},
      {problem(512, 512, 512, MmaOperand::none), traits(Architecture::sm_90a),
       ProductKernel::tiles},
      {wide, traits(Architecture::sm_90a), ProductKernel::tiles},
  };
  for (const Row& row : rows) {
    CHECK(select_kernel(row.p, row.t) == row.want);
    CHECK(product_refusal(row.want, row.p, row.t).empty());
  }
}

TEST_CASE("the tile of a product on mma.sync") {
  struct Row {
    unsigned m, n, results;
    bool chunked;
    ProductTile want;
  };
  const Row rows[] = {
      {8192, 8192, 1, true, ProductTile::m256n128}, {4096, 4096, 1, true, ProductTile::m256n128},
      {2048, 2048, 1, true, ProductTile::m256n128}, {1024, 1024, 1, true, ProductTile::m128n128},
      {512, 512, 1, true, ProductTile::m64n64},     {512, 512, 16, true, ProductTile::m256n128},
      {8192, 8192, 1, false, ProductTile::m64n64},  {65536, 16, 1, true, ProductTile::m32n32},
      {16, 65536, 1, true, ProductTile::m32n32},    {33, 33, 1, true, ProductTile::m64n64},
      {1, 1, 1, true, ProductTile::m32n32},         {65536, 48, 1, true, ProductTile::m64n64},
      {128, 65536, 1, true, ProductTile::m128n128},
  };
  for (const Row& row : rows) {
    CAPTURE(row.m);
    CAPTURE(row.n);
    ProductProblem p = problem(row.m, row.n, 1024);
    p.size.results = row.results;
    CHECK(select_tile(p, row.chunked) == row.want);
    p.tile = ProductTile::m32n32;
    CHECK(select_tile(p, row.chunked) == ProductTile::m32n32);
  }
}

TEST_CASE("the parts of a product's sums depend on its sizes alone") {
  struct Row {
    unsigned m, n, depth;
    bool may_split;
    unsigned split, parts;
  };
  const Row rows[] = {
      {64, 64, 8192, false, 0, 1},    {64, 64, 8192, true, 0, 32},
      {64, 64, 511, true, 0, 2},      {64, 64, 255, true, 0, 1},
      {64, 64, 1 << 20, true, 0, 64}, {1024, 1024, 8192, true, 0, 4},
      {4096, 4096, 8192, true, 0, 1}, {64, 64, 8192, false, 3, 3},
      {64, 64, 100, false, 7, 2},     {64, 64, 0, false, 7, 1},
      {4096, 4096, 8192, true, 2, 2},
  };
  for (const Row& row : rows) {
    CAPTURE(row.m);
    CAPTURE(row.depth);
    ProductProblem p = problem(row.m, row.n, row.depth);
    p.may_split = row.may_split;
    p.split = row.split;
    for (const ProductKernel kernel : kProductKernels) {
      p.kernel = kernel;
      const ProductCut cut = product_cut(p);
      CHECK(cut.parts == row.parts);
      // Whole blocks, all of them, and none of the parts empty.
      CHECK((cut.parts - 1) * cut.blocks_a_part < std::max(1U, cut.all_blocks));
      CHECK(cut.parts * cut.blocks_a_part >= cut.all_blocks);
    }
  }
  // Modelled accumulators have the reference's bits, which come from one chain.
  ProductProblem modelled = problem(64, 64, 8192);
  modelled.may_split = true;
  modelled.arithmetic = {true, Accumulator::h100, DType::fp16};
  CHECK(product_cut(modelled).parts == 1);
}

TEST_CASE("by rows and in order neither kernel nor cut looks at the number of rows") {
  for (const unsigned m : {1U, 64U, 65U, 4096U}) {
    for (const MmaOperand operand : {MmaOperand::fp16, MmaOperand::tf32, MmaOperand::none}) {
      for (const Architecture architecture : {Architecture::any, Architecture::sm_90a}) {
        CAPTURE(m);
        ProductProblem p = problem(m, 4096, 8192, operand);
        p.may_split = true;
        p.order = SumOrder::by_row;
        CHECK(select_kernel(p, traits(architecture)) ==
              (operand == MmaOperand::none ? ProductKernel::tiles : ProductKernel::sm80));
        p.order = SumOrder::by_matrix;
        p.size.terms = 5;
        CHECK(select_kernel(p, traits(architecture)) ==
              (operand == MmaOperand::none ? ProductKernel::tiles : ProductKernel::sm80));
        CHECK(product_cut(p).parts == 5);
        CHECK(product_cut(p).folded);
        CHECK_FALSE(product_refusal(ProductKernel::sm90, p, traits(architecture)).empty());
        p.size.terms = 1;
        CHECK(product_cut(p).parts == 1);
        CHECK(product_cut(p).folded);
        p.order = SumOrder::in_order;
        CHECK(select_kernel(p, traits(architecture)) == ProductKernel::tiles);
        CHECK(product_cut(p).parts == 1);
        CHECK(product_refusal(ProductKernel::naive, p, traits(architecture)).empty());
        for (const ProductKernel kernel :
             {ProductKernel::mma, ProductKernel::sm80, ProductKernel::wgmma, ProductKernel::sm90})
          CHECK_FALSE(product_refusal(kernel, p, traits(architecture)).empty());
      }
    }
  }
}

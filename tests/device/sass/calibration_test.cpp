// The census against kernels of known instructions, compiled by this build's nvcc.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "bench/evidence/kernel_code.h"
#include "tests/device/sass/expectations.h"

using namespace roundoff;
using namespace roundoff::evidence;

namespace {

const std::vector<KernelCode>& kernels() {
  static const std::vector<KernelCode> all =
      read_kernels(std::filesystem::path(ROUNDOFF_CALIBRATION));
  return all;
}

const KernelCode& kernel(std::string_view name, int architecture) {
  for (const KernelCode& code : kernels())
    if (code.name == name && code.architecture == architecture) return code;
  FAIL("no kernel " << std::string(name) << " for sm_" << architecture);
  return kernels().front();
}

// Counts by width: narrower than 32 bits, 32, 64, 128.
using Widths = std::array<std::size_t, 4>;
struct Expected {
  Sass kind;
  std::size_t total;
  Widths widths{};
};
struct Row {
  std::string_view kernel;
  std::vector<Expected> has;
};

constexpr Widths kNarrow{1, 0, 0, 0}, k32{0, 1, 0, 0}, k64{0, 0, 1, 0}, k128{0, 0, 0, 1};
Expected of(Sass kind, std::size_t total, Widths width = {}) {
  for (std::size_t& n : width) n *= total;
  return {kind, total, width};
}
const Expected kKept = of(Sass::stg, 1, k32);

// What each kernel holds of the kinds that are told apart; of all others it holds none.
std::vector<Row> rows() {
  using enum Sass;
  std::vector<Row> rows = {
      {"nothing", {}},
      {"ld_constant_128", {of(ldg, 1, k128), kKept}},
      {"mma_fp16", {of(ldg, 10, k32), of(hmma, 3), of(stg, 4, k32)}},
      {"mma_bf16", {of(ldg, 10, k32), of(hmma, 3), of(stg, 4, k32)}},
      {"mma_tf32", {of(ldg, 10, k32), of(hmma, 3), of(stg, 4, k32)}},
      {"fma_single", {of(ldg, 3, k32), of(ffma, 3), kKept}},
      {"fma_double", {of(ldg, 3, k64), of(dfma, 3), of(stg, 1, k64)}},
      {"add_mul", {of(ldg, 6, k32), of(fadd, 2), of(fmul, 3), kKept}},
      {"special", {of(ldg, 1, k32), of(mufu, 3), kKept}},
      {"shuffles", {of(ldg, 1, k32), of(shfl, 3), kKept}},
      {"barriers", {of(bar, 3), of(stg, 3, k32)}},
      {"reductions", {of(red, 3)}},
      // The first addition is made once a warp; the shuffle hands its result around.
      {"atomics", {of(atomg, 3), of(shfl, 1), kKept}},
      {"shared_atomics", {of(ldg, 4, k32), of(atoms, 3), of(shfl, 1), kKept}},
      {"ldmatrix_1_2_4", {{ldsm, 3, {0, 1, 1, 1}}, kKept}},
  };
  struct Space {
    std::string name;
    Sass load, store;
  };
  for (const Space& space : {Space{"global", ldg, stg}, Space{"shared", lds, sts},
                             Space{"local", ldl, stl}, Space{"volatile", ld, st}}) {
    static std::vector<std::string> names;  // rows view them
    names.reserve(32);
    const auto add = [&](const std::string& name, std::vector<Expected> has) {
      names.push_back(name);
      rows.push_back({names.back(), std::move(has)});
    };
    add("ld_" + space.name + "_16", {of(space.load, 1, kNarrow), kKept});
    add("ld_" + space.name + "_32", {of(space.load, 3, k32), kKept});
    add("ld_" + space.name + "_64", {of(space.load, 2, k64), kKept});
    add("ld_" + space.name + "_128", {of(space.load, 1, k128), kKept});
    add("st_" + space.name + "_16", {of(space.store, 3, kNarrow)});
    add("st_" + space.name + "_32", {of(space.store, 3, k32)});
    add("st_" + space.name + "_64", {of(space.store, 3, k64)});
    add("st_" + space.name + "_128", {of(space.store, 3, k128)});
  }
  return rows;
}
std::vector<Row> rows_of_sm90();
std::vector<Row> rows_of_sm80() {
  using enum Sass;
  std::vector<Row> rows = {{"cp_async_4", {of(ldgsts, 3, k32)}},
                           {"cp_async_8", {of(ldgsts, 3, k64)}},
                           {"cp_async_16", {of(ldgsts, 3, k128)}}};
  // What only sm_90a has is empty here.
  for (const Row& row : rows_of_sm90())
    if (!row.kernel.starts_with("cp_async")) rows.push_back({row.kernel, {}});
  return rows;
}
std::vector<Row> rows_of_sm90() {
  using enum Sass;
  // ptxas adds a load of shared memory to each cp.async for this architecture.
  return {{"cp_async_4", {of(ldgsts, 3, k32), of(lds, 3, k32)}},
          {"cp_async_8", {of(ldgsts, 3, k64), of(lds, 3, k32)}},
          {"cp_async_16", {of(ldgsts, 3, k128), of(lds, 3, k32)}},
          {"tensor_load", {of(utmaldg, 3)}},
          {"tensor_load_multicast", {of(utmaldg, 3)}},
          {"tensor_load_im2col", {of(utmaldg, 3)}},
          {"tensor_store", {of(utmastg, 3)}},
          {"tensor_add", {of(utmaredg, 3)}},
          {"bulk_load", {of(ublkcp, 3)}},
          {"mbarrier_init_arrive_inval", {of(syncs, 3)}},
          {"mbarrier_expect", {of(syncs, 3)}},
          {"mbarrier_try_wait", {of(syncs, 1), kKept}},
          {"store_matrix", {{stsm, 3, {0, 1, 1, 1}}}},
          {"warpgroup_products", {of(ldg, 4, k32), of(hgmma, 3), of(stg, 4, k32)}},
          {"register_counts", {of(usetmaxreg, 2), kKept}},
          {"cluster_barriers", {of(ucgabar, 2), of(bar, 1), kKept}}};
}

std::string told(const Census& census) {
  std::string text;
  for (int i = 0; i < kSassKinds; ++i)
    if (const SassCount& count = census.kinds[static_cast<std::size_t>(i)]; count.total != 0)
      text += std::string(name(static_cast<Sass>(i))) + " " + std::to_string(count.total) + "  ";
  return text;
}

void check_rows(const std::vector<Row>& rows, int architecture) {
  for (const Row& row : rows) {
    const Census& census = kernel(row.kernel, architecture).census;
    Census expected;
    for (const Expected& has : row.has) {
      expected.of(has.kind).total = has.total;
      expected.of(has.kind).narrow_32_64_128 = has.widths;
    }
    CAPTURE(row.kernel);
    CAPTURE(architecture);
    const std::string found = told(census);
    CAPTURE(found);
    for (int i = 0; i < static_cast<int>(Sass::other); ++i) {
      const auto kind = static_cast<Sass>(i);
      CAPTURE(name(kind));
      CHECK(census.of(kind).total == expected.of(kind).total);
      CHECK(census.of(kind).narrow_32_64_128 == expected.of(kind).narrow_32_64_128);
    }
  }
}

}  // namespace

TEST_CASE("the census finds the instructions that kernels were written with") {
  for (const int architecture : {80, 90}) check_rows(rows(), architecture);
  check_rows(rows_of_sm80(), 80);
  check_rows(rows_of_sm90(), 90);
}

TEST_CASE("every kernel of the calibration file is looked at, for both architectures") {
  std::map<int, std::size_t> count;
  for (const KernelCode& code : kernels()) {
    ++count[code.architecture];
    CHECK(code.specific == (code.architecture == 90));
    CHECK(code.code_bytes % 16 == 0);
    CHECK(code.symbol == code.name);  // extern "C"
  }
  constexpr std::size_t kOfTheirOwn = 6;  // loops and resources, below
  CHECK(count[80] == rows().size() + rows_of_sm80().size() + kOfTheirOwn);
  CHECK(count[90] == rows().size() + rows_of_sm90().size() + kOfTheirOwn);
}

TEST_CASE("registers, shared memory, stack, spills and launch bounds are those of ptxas") {
  for (const int architecture : {80, 90}) {
    CAPTURE(architecture);
    CHECK(kernel("bounded_192", architecture).max_threads == 192);
    CHECK(kernel("nothing", architecture).max_threads == 0);
    CHECK(kernel("static_shared", architecture).shared == 12000);
    CHECK(kernel("shared_atomics", architecture).shared == 16);
    CHECK(kernel("nothing", architecture).shared == 0);

    const KernelCode& framed = kernel("stack_1200", architecture);
    CHECK(framed.stack == 1200);
    CHECK(framed.local_accesses() > 0);

    const KernelCode& spilling = kernel("spilling", architecture);
    CHECK(spilling.registers == 32);  // 65536 / (2 x 1024)
    CHECK(spilling.max_threads == 1024);
    CHECK(spilling.stack > 0);
    CHECK(spilling.local_accesses() > 0);
    CHECK(spilling.occupancy(1024).blocks == 2);

    for (const char* clean : {"nothing", "mma_fp16", "static_shared", "loop_of_products"}) {
      CHECK(kernel(clean, architecture).stack == 0);
      CHECK(kernel(clean, architecture).local_accesses() == 0);
    }
  }
  CHECK(kernel("register_counts", 90).registers == 168);  // 65536 / 384, in units of 8
}

TEST_CASE("a kernel with a stack frame, spills or too large a block meets no expectation") {
  for (const int architecture : {80, 90}) {
    const std::vector<std::string> spilling =
        testing::failures_of_any(kernel("spilling", architecture));
    REQUIRE(spilling.size() == 2);
    CHECK(spilling[0].starts_with("a stack frame of "));
    CHECK(spilling[1].ends_with(" accesses of local memory"));
    KernelCode large = kernel("bounded_192", architecture);
    large.registers = 65;
    CHECK(testing::failures_of_any(large).empty());
    large.max_threads = 0;
    CHECK(testing::failures_of_any(large) ==
          std::vector<std::string>{"a block of 1024 threads does not fit on a multiprocessor"});
    CHECK(testing::failures_of_any(kernel("bounded_192", architecture)).empty());
    CHECK(testing::failures({.kernel = "spilling", .registers = 31},
                            kernel("spilling", architecture)) ==
          std::vector<std::string>{"32 registers, at most 31 expected"});
  }
}

TEST_CASE("loops are told from code around them") {
  for (const int architecture : {80, 90}) {
    CAPTURE(architecture);
    const KernelCode& one = kernel("loop_of_products", architecture);
    CHECK(one.census.loops == 1);
    CHECK(one.census.of(Sass::ffma).total == 15);
    CHECK(one.census.of(Sass::ffma).in_loops == 12);
    REQUIRE(one.main_loop.has_value());
    CHECK(one.main_loop->of(Sass::ffma).total == 12);
    CHECK(one.main_loop->of(Sass::stg).total == 1);

    const KernelCode& nested = kernel("nested_loops", architecture);
    CHECK(nested.census.loops == 2);
    CHECK(nested.census.of(Sass::ffma).in_loops == 3);

    const KernelCode& none = kernel("fma_single", architecture);
    CHECK(none.census.loops == 0);
    CHECK_FALSE(none.main_loop.has_value());
  }
}

#include "bench/evidence/kernel_code.h"

#include <doctest/doctest.h>

#include <string>

#include "kernels/base/check.h"
#include "tests/bench/evidence/cubin_bytes.h"

using namespace roundoff;
using namespace roundoff::evidence;
using testing::FileBytesVector;

namespace {

constexpr const char* kMangled = "_ZN8roundoff7on_cuda12_GLOBAL__N_112softmax_rowsIfLi32EEEvPKT_i";

std::vector<KernelCode> read(const FileBytesVector& file) { return read_kernels(file, "file"); }

FileBytesVector sample_cubin(std::uint32_t architecture = 80) {
  testing::CubinKernel kernel = testing::sample_kernel(kMangled);
  kernel.registers = 72;
  kernel.stack = 16;
  kernel.max_threads = 256;
  kernel.shared = 2048;
  return testing::cubin({kernel, testing::sample_kernel("other")}, architecture);
}

std::string error_of(const FileBytesVector& file) {
  try {
    (void)read(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a cubin's kernels: names, resources, census") {
  const std::vector<KernelCode> kernels = read(sample_cubin());
  REQUIRE(kernels.size() == 2);
  const KernelCode& first = kernels[0];
  CHECK(first.symbol == kMangled);
  CHECK(first.name == "softmax_rows<float, 32>");
  CHECK(base_name(first.name) == "softmax_rows");
  CHECK(first.architecture == 80);
  CHECK(first.registers == 72);
  CHECK(first.stack == 16);
  CHECK(first.shared == 2048);
  CHECK(first.max_threads == 256);
  CHECK(first.code_bytes == 8 * 16);
  CHECK(first.occupancy(256).blocks == 3);
  CHECK(first.occupancy(256, 100 * 1024).blocks == 1);

  CHECK(first.census.instructions == 7);  // without the NOP behind them
  CHECK(first.census.of(Sass::ldg).of_128() == 1);
  CHECK(first.census.of(Sass::lds).of_32() == 1);
  CHECK(first.census.of(Sass::stg).of_64() == 1);
  CHECK(first.census.of(Sass::hmma).total == 1);
  CHECK(first.census.of(Sass::hmma).in_loops == 1);
  CHECK(first.census.of(Sass::ldg).in_loops == 0);
  CHECK(first.census.loops == 1);
  REQUIRE(first.main_loop.has_value());
  CHECK(first.main_loop->instructions == 3);
  CHECK(first.main_loop->of(Sass::lds).total == 1);
  CHECK(first.local_accesses() == 0);

  CHECK(kernels[1].name == "other");
  CHECK(kernels[1].registers == 40);
  CHECK(kernels[1].max_threads == 0);
}

TEST_CASE("sm_90's shared memory begins with what the system takes") {
  CHECK(read(sample_cubin(90))[0].shared == 1024);
  CHECK(read(sample_cubin(90))[1].shared == 0);
}

TEST_CASE("code is found in fat binaries, objects and archives") {
  const FileBytesVector fat =
      testing::fat_binary({{.kind = 1, .payload = FileBytesVector(40)},  // PTX
                           {.architecture = 80, .payload = sample_cubin()},
                           {.architecture = 90, .flags = 0x100011, .payload = sample_cubin(90)}});
  const auto check = [](const FileBytesVector& file, std::size_t copies) {
    const std::vector<KernelCode> kernels = read(file);
    REQUIRE(kernels.size() == 4 * copies);
    CHECK(kernels[0].architecture == 80);
    CHECK_FALSE(kernels[0].specific);
    CHECK(kernels[2].architecture == 90);
    CHECK(kernels[2].specific);
  };
  check(fat, 1);
  FileBytesVector two = fat;
  two.resize(two.size() + 8);  // a linker's padding
  two.insert(two.end(), fat.begin(), fat.end());
  check(two, 2);
  check(testing::host_object(two), 2);
  FileBytesVector odd(3, std::byte{1});
  check(testing::archive({odd, testing::host_object(fat), testing::host_object(fat)}), 2);
  CHECK(read(testing::elf_file({}, 62, 0)).empty());  // a program without any
}

TEST_CASE("what is no code, or contradicts itself, is one clear error") {
  CHECK(error_of({}) ==
        "[cubin] file: neither a cubin nor a fat binary, an ELF file or an archive");
  CHECK(error_of(FileBytesVector(100)) == error_of({}));
  CHECK(
      error_of(testing::fat_binary({{.flags = 0x8011, .payload = sample_cubin()}})) ==
      "[cubin] file: its code for sm_80 is compressed; nvcc --compress-mode=none writes it plain");
  CHECK(error_of(testing::fat_binary({{.payload = FileBytesVector(64)}})) ==
        "[cubin] file: no ELF file");
  FileBytesVector narrow = sample_cubin();
  narrow[4] = std::byte{1};
  CHECK(error_of(narrow) == "[cubin] file: an ELF file that is not 64-bit little-endian");
  FileBytesVector names = sample_cubin();
  testing::set<std::uint16_t>(names, 62, 99);
  CHECK(error_of(names) == "[cubin] file: section 99 of 11 should hold the names");
  CHECK(error_of(testing::fat_binary({{.payload = testing::elf_file({}, 62, 0)}})) ==
        "[cubin] file: an entry that should hold a cubin");
  CHECK(error_of(testing::cubin({testing::sample_kernel(), testing::sample_kernel()})) ==
        "[cubin] file: a kernel that is there twice");
  testing::CubinKernel huge = testing::sample_kernel();
  huge.registers = 0xFFFFFFFF;
  CHECK(error_of(testing::cubin({huge})) == "[cubin] file: registers of 4294967295 cannot be");
  CHECK_THROWS_WITH_AS(read_kernels(std::filesystem::path("/nowhere/at/all")),
                       "[cubin] /nowhere/at/all: No such file or directory", Error);
}

TEST_CASE("a file cut anywhere, or with any byte changed, gives kernels or an error") {
  const FileBytesVector whole = testing::archive({testing::host_object(testing::fat_binary(
      {{.architecture = 80, .payload = sample_cubin()},
       {.architecture = 90, .flags = 0x100011, .payload = sample_cubin(90)}}))});
  std::size_t errors = 0, survived = 0;
  const auto attempt = [&](const FileBytesVector& file) {
    // In a block of its own size, so that AddressSanitizer sees a step beyond it.
    const FileBytesVector exact(file.begin(), file.end());
    error_of(exact) == "none" ? ++survived : ++errors;
  };
  for (std::size_t size = 0; size < whole.size(); ++size)
    attempt(FileBytesVector(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
  CHECK(errors == whole.size() - 1);  // an archive of nothing is one
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const unsigned value : {0x00U, 0x01U, 0x7FU, 0x80U, 0xFFU}) {
      FileBytesVector changed = whole;
      changed[at] = static_cast<std::byte>(value);
      attempt(changed);
    }
  CHECK(survived > 0);
}

TEST_CASE("code that jumps back is a loop only where it comes round again") {
  FileBytesVector code;
  testing::put_instruction(code, 0x981, 4);  // LDG
  testing::put_branch(code, 2, false);       // to the cold code
  testing::put_instruction(code, 0x23C);     // HMMA
  testing::put_instruction(code, 0x94D);     // EXIT
  testing::put_instruction(code, 0x221);     // FADD, the cold code
  testing::put_branch(code, -4, true);       // back to the HMMA
  CHECK(census(code, 80).loops == 0);
  CHECK(census(code, 80).of(Sass::hmma).in_loops == 0);
  CHECK_FALSE(main_loop(code, 80).has_value());
}

TEST_CASE("random code is counted, never followed out of its section") {
  FileBytesVector code;
  std::uint64_t state = 1;
  for (int i = 0; i < 4096; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    testing::put(code, (state >> 20 & ~0xFFFULL) |
                           (i % 3 == 0 ? 0x947U : 0x945U - static_cast<unsigned>(i % 5)));
    testing::put(code, state ^ state << 21);
  }
  for (const int architecture : {80, 90, 0}) {
    const Census counted = census(code, architecture);
    CHECK(counted.instructions <= 4096);
    CHECK(counted.instructions > 4000);
  }
  CHECK(census({}, 80).instructions == 0);
  CHECK_FALSE(main_loop({}, 80).has_value());
}

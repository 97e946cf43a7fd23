// The model of tensor cores against recorded outputs of real ones: 5000 dot products for each GPU
// and operand type, by Khattak and Mikaitis (MATLAB-tensor-core, model_validation). The recordings
// are no part of this repository; ROUNDOFF_TENSOR_CORE_DATA names their folder.
#include <doctest/doctest.h>

#include <bit>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/base/tensor_core.h"

using namespace roundoff;

namespace {

std::vector<std::string> lines(const std::string& file) {
  std::ifstream in(std::string(ROUNDOFF_TENSOR_CORE_DATA) + "/" + file);
  REQUIRE_MESSAGE(in.good(), file);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}
float from_bits(const std::string& text, int base) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(text, nullptr, base)));
}
std::vector<float> operands(const std::string& line) {
  std::istringstream in(line);
  std::vector<float> values;
  for (std::string word; in >> word;) values.push_back(from_bits(word, 16));
  return values;
}

void compare(const std::string& gpu, Accumulator accumulator, const std::string& type,
             DType operand) {
  const std::string kind = "_" + gpu + "_" + type + "_" + type + ".txt";
  const std::vector<std::string> a = lines("a" + kind), b = lines("b" + kind),
                                 c = lines("c_" + gpu + "_fp32_" + type + ".txt"),
                                 d = lines("d_" + gpu + "_fp32_" + type + ".txt");
  REQUIRE(a.size() == 5000);
  REQUIRE(b.size() == a.size());
  REQUIRE(c.size() == a.size());
  REQUIRE(d.size() == a.size());
  const TensorCore core = tensor_core(accumulator, operand);
  int differ = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::vector<float> x = operands(a[i]), y = operands(b[i]);
    REQUIRE(x.size() == y.size());
    const float got = tensor_core_dot(core, x.data(), y.data(), static_cast<std::int64_t>(x.size()),
                                      from_bits(c[i], 2));
    if (std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(from_bits(d[i], 2)))
      ++differ;
  }
  CHECK(differ == 0);
}

}  // namespace

TEST_CASE("V100: fp16") { compare("V100", Accumulator::v100, "fp16", DType::fp16); }
TEST_CASE("A100: fp16, bf16, tf32") {
  compare("A100", Accumulator::a100, "fp16", DType::fp16);
  compare("A100", Accumulator::a100, "bf16", DType::bf16);
  compare("A100", Accumulator::a100, "tf32", DType::fp32);
}
TEST_CASE("H100: fp16, bf16, tf32") {
  compare("H100", Accumulator::h100, "fp16", DType::fp16);
  compare("H100", Accumulator::h100, "bf16", DType::bf16);
  compare("H100", Accumulator::h100, "tf32", DType::fp32);
}

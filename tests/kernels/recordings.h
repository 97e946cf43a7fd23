// Recorded outputs of real tensor cores, by Khattak and Mikaitis (MATLAB-tensor-core,
// model_validation): 5000 dot products for each GPU, operand type and accumulator. They are no part
// of this repository; ROUNDOFF_TENSOR_CORE_DATA names their folder.
#pragma once

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/skip.h"

namespace roundoff::test {

struct Recording {
  std::vector<float> a, b;
  float c = 0, d = 0;
};

inline bool recordings_absent() {
  if (!std::string(ROUNDOFF_TENSOR_CORE_DATA).empty()) return false;
  skip_test("no recordings: ROUNDOFF_TENSOR_CORE_DATA is not set");
  return true;
}

inline std::vector<std::string> lines_of_recordings(const std::string& file) {
  std::ifstream in(std::string(ROUNDOFF_TENSOR_CORE_DATA) + "/" + file);
  REQUIRE_MESSAGE(in.good(), file);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(line);
  REQUIRE(all.size() == 5000);
  return all;
}

inline float float_of_bits(const std::string& text, int base) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(text, nullptr, base)));
}

// gpu: V100, A100, H100; type: fp16, bf16, tf32, E4M3; to: fp32 or fp16.
inline std::vector<Recording> read_recordings(const std::string& gpu, const std::string& type,
                                              const std::string& to) {
  const std::string kind = "_" + gpu + "_" + type + "_" + type + ".txt";
  const std::vector<std::string> a = lines_of_recordings("a" + kind),
                                 b = lines_of_recordings("b" + kind),
                                 c = lines_of_recordings("c_" + gpu + "_fp32_" + type + ".txt"),
                                 d = lines_of_recordings("d_" + gpu + "_" + to + "_" + type +
                                                         ".txt");
  const auto operands = [](const std::string& line) {
    std::istringstream in(line);
    std::vector<float> values;
    for (std::string word; in >> word;) values.push_back(float_of_bits(word, 16));
    return values;
  };
  std::vector<Recording> all(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    all[i] = {operands(a[i]), operands(b[i]), float_of_bits(c[i], 2), float_of_bits(d[i], 2)};
    REQUIRE(all[i].a.size() == all[i].b.size());
  }
  return all;
}

}  // namespace roundoff::test

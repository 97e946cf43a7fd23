// Chains of operations, each node judged by itself.
#include "verify/chain.h"

#include <doctest/doctest.h>

using namespace roundoff;

TEST_CASE("chains on the cpu: every node within its own bound, in every dtype") {
  for (const Chain& chain : list_chains())
    for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16, DType::fp64})
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        const CheckReport r = check_chain(chain, dtype, Device::cpu, {}, seed);
        INFO(chain.name, ", ", std::string(name(dtype)), ": ", r.holds() ? "" : r.failures[0].text);
        CHECK(r.holds());
        CHECK(r.ratio > 0);
        CHECK(r.ratio <= 1);
        CHECK(r.gradient_ratio > 0);
        CHECK(r.gradient_ratio <= 1);
      }
}

TEST_CASE("a chain names the first node that left its bound, and not those after it") {
  const Chain chain = list_chains()[0];
  for (const std::size_t wrong : {0U, 2U}) {
    const CheckReport r =
        check_chain(chain, DType::fp32, Device::cpu, {}, 1, 0, [&](std::size_t step, Tensor& y) {
          if (step == wrong) y.data<float>()[7] += 0.5F;
        });
    REQUIRE(!r.holds());
    CAPTURE(r.failures[0].text);
    CHECK(r.failures[0].text.find(concat("step ", wrong, " (linear), forward: y[0,7]")) == 0);
    // What follows was fed the wrong value and made the right thing of it.
    for (const CheckFailure& f : r.failures) CHECK(f.text.find("forward: y") != std::string::npos);
    CHECK(r.failures.size() == 1);
  }
}

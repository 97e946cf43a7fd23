// roundoff op on the simulated device.
#include "tests/cli/op_call.h"

using namespace roundoff;
using namespace roundoff::test;

TEST_CASE("op runs on sim: integers come back exact, forward and backward, in every precision") {
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    CAPTURE(dtype);
    std::vector<Numbers> y, da, db;
    for (const char* device : {"cpu", "sim"}) {
      Call c("matmul");
      c.in("a", pattern(5 * 7, 3, 8, 4), {5, 7}).in("b", pattern(7 * 3, 5, 8, 3), {7, 3});
      c.grad(pattern(5 * 3, 3, 5, 2), {5, 3});
      c.with({"--dtype", dtype, "--out-dtype", "fp32", "--device", device}).go();
      y.push_back(c.numbers("y"));
      da.push_back(c.numbers("da"));
      db.push_back(c.numbers("db"));
      CHECK(c.report()["y"]["max_abs"] == 0);
    }
    CHECK(y[0] == y[1]);
    CHECK(da[0] == da[1]);
    CHECK(db[0] == db[1]);
  }
}

TEST_CASE("op on sim is judged by the bounds") {
  Call c("softmax");
  c.in("x", pattern(6 * 33, 7, 29, 12), {6, 33}).grad(pattern(6 * 33, 5, 17, 8), {6, 33});
  c.with({"--dtype", "fp16", "--device", "sim"}).go();
  CHECK(c.report()["y"]["holds"] == true);
  CHECK(c.report()["dx"]["holds"] == true);
}

TEST_CASE("op on sim names bad data as on cpu") {
  for (const char* device : {"cpu", "sim"}) {
    Call c("cross_entropy");
    c.in("logits", ramp(6), {2, 3}).in("target", {0, 3}, {2}, DType::i64);
    c.with({"--device", device});
    check_error(c, cli::kFailed, "cross_entropy", "row 1 has label 3, expected 0 to 2");
  }
}

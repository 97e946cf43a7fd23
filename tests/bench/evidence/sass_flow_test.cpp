#include "bench/evidence/sass_flow.h"

#include <doctest/doctest.h>

namespace roundoff::evidence {

TEST_CASE("a loop of sm_80 that is held together by a call which never returns is a loop") {
  // HMMA; @P2 CALL past the exit; EXIT; BRA back to the first.
  const SassWord code[] = {{0x723C, 0},
                           {0x0000001000002944, 0x000FE20003C00000},
                           {0x794D, 0x000FEA0003800000},
                           {0xFFFFFFC000007947, 0x000FEA000383FFFF}};
  const SassFlow flow = sass_flow(code, 80);
  REQUIRE(flow.loops.size() == 1);
  CHECK(flow.loops[0].first == 0);
  CHECK(flow.loops[0].last == 3);
  CHECK(flow.in_loop == std::vector<bool>{true, true, false, true});
}

}  // namespace roundoff::evidence

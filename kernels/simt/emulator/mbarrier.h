// mbarriers on the emulator (kernels/simt/mbarrier.h says what they do).
#pragma once

#include <cstdint>

#include "kernels/simt/emulator/api.h"
#include "kernels/simt/site.h"

namespace roundoff::simt {

ROUNDOFF_SIMT_API void mbarrier_init(std::uint64_t* barrier, unsigned count, Site site);
ROUNDOFF_SIMT_API void mbarrier_inval(std::uint64_t* barrier, Site site);
ROUNDOFF_SIMT_API void fence_mbarrier_init(Site site);
// The result is the number of the phase that the arrival counted in.
ROUNDOFF_SIMT_API std::uint64_t mbarrier_arrive(std::uint64_t* barrier, unsigned count, Site site);
ROUNDOFF_SIMT_API std::uint64_t mbarrier_arrive_expect_tx(std::uint64_t* barrier, unsigned bytes,
                                                          Site site);
ROUNDOFF_SIMT_API void mbarrier_expect_tx(std::uint64_t* barrier, unsigned bytes, Site site);
ROUNDOFF_SIMT_API void mbarrier_complete_tx(std::uint64_t* barrier, unsigned bytes, Site site);
ROUNDOFF_SIMT_API bool mbarrier_test_wait(std::uint64_t* barrier, std::uint64_t state, Site site);
ROUNDOFF_SIMT_API bool mbarrier_test_wait_parity(std::uint64_t* barrier, unsigned parity,
                                                 Site site);
ROUNDOFF_SIMT_API bool mbarrier_try_wait(std::uint64_t* barrier, std::uint64_t state, Site site);
ROUNDOFF_SIMT_API bool mbarrier_try_wait_parity(std::uint64_t* barrier, unsigned parity, Site site);

}  // namespace roundoff::simt

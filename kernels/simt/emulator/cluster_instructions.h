// Cluster instructions and elect.sync on the emulator (kernels/simt/cluster.h says what they do).
#pragma once

#include "kernels/simt/emulator/api.h"
#include "kernels/simt/site.h"

namespace roundoff::simt {

ROUNDOFF_SIMT_API unsigned cluster_rank(Site site);
ROUNDOFF_SIMT_API unsigned cluster_size(Site site);
ROUNDOFF_SIMT_API void cluster_arrive(Site site);
ROUNDOFF_SIMT_API void cluster_wait(Site site);
ROUNDOFF_SIMT_API void* cluster_map(const void* shared, unsigned rank, Site site);
ROUNDOFF_SIMT_API bool elect_one(Site site);

}  // namespace roundoff::simt

#include "bench/code.h"

#include <algorithm>
#include <filesystem>

#include "kernels/base/check.h"

namespace roundoff::bench {

namespace {

using evidence::KernelCode;
using evidence::Sass;

std::vector<KernelCode> own_kernels() {
#if defined(ROUNDOFF_HAS_CUDA)
  return evidence::read_kernels(std::filesystem::path("/proc/self/exe"));
#else
  return {};
#endif
}

}  // namespace

const CodeCensus& CodeCensus::of_program() {
  static const CodeCensus all(own_kernels());
  return all;
}

void CodeCensus::add_to(Row& row, const std::vector<LaunchedKernel>& launches,
                        int capability) const {
  for (const LaunchedKernel& launch : launches) {
    std::vector<const KernelCode*> found;
    for (const KernelCode& k : kernels_)
      if (k.architecture == capability && evidence::base_name(k.name) == launch.name)
        found.push_back(&k);
    if (found.empty()) continue;
    const auto most = [&](auto value) {
      std::int64_t largest = 0;
      for (const KernelCode* k : found)
        largest = std::max(largest, static_cast<std::int64_t>(value(*k)));
      return largest;
    };
    const auto in_loop = [&](Sass kind) {
      return most([kind](const KernelCode& k) {
        return k.main_loop ? k.main_loop->of(kind).total : std::size_t{0};
      });
    };
    const auto put = [&](std::string name, MetricValue value,
                         Provenance from = Provenance::counted) {
      row.metrics.push_back({std::move(name), from, std::move(value), {}, 3, false, "code"});
    };
    put("code_of", launch.name, Provenance::none);
    put("instances", static_cast<std::int64_t>(found.size()));
    const std::int64_t registers = most([](const KernelCode& k) { return k.registers; });
    const std::int64_t shared = most([](const KernelCode& k) { return k.shared; });
    put("registers", registers);
    put("static_shared", shared);
    put("stack_bytes", most([](const KernelCode& k) { return k.stack; }));
    put("local_accesses", most([](const KernelCode& k) { return k.local_accesses(); }));
    for (const auto& [name, kind] : {std::pair{"HMMA", Sass::hmma},
                                     {"HGMMA", Sass::hgmma},
                                     {"LDSM", Sass::ldsm},
                                     {"LDGSTS", Sass::ldgsts},
                                     {"FFMA", Sass::ffma}})
      if (const std::int64_t n = in_loop(kind); n != 0) put(concat(name, "_in_loop"), n);
    const evidence::Occupancy o = evidence::occupancy(
        evidence::sm_limits(capability),
        {launch.threads, static_cast<int>(registers), static_cast<int>(shared) + launch.shared});
    put("blocks_per_sm", static_cast<std::int64_t>(o.blocks), Provenance::modelled);
    put("occupancy", o.share, Provenance::modelled);
    put("occupancy_limit", std::string(evidence::name(o.limit)), Provenance::none);
    return;
  }
}

}  // namespace roundoff::bench

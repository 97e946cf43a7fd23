// Kernels on the emulator, counted. Nothing here is a time.
#include <algorithm>
#include <memory>

#include "bench/operands.h"
#include "bench/predict.h"
#include "bench/run.h"
#include "bench/verify.h"
#include "engine/context.h"
#include "kernels/simt/runtime_sim.h"

namespace roundoff::bench {

namespace {

using simt::Counters;
using simt::LaunchRecord;

#if defined(ROUNDOFF_HAS_CHECKED)
constexpr bool kInstrumented = true;
#else
constexpr bool kInstrumented = false;
#endif

struct Counted {
  std::vector<LaunchRecord> launches;
  simt::RuntimeCounters runtime;
  NamedTensors results;  // on the host
};

// Runs the pass once, of each launch at most `sample` clusters (0: all).
Counted count(const Problem& problem, const Operands& operands, int capability,
              std::size_t sample) {
  simt::SimOptions options;
  options.emulator.profile = kInstrumented;
  options.emulator.record_launches = true;
  options.emulator.architecture =
      capability >= 90 ? simt::SimArchitecture::sm_90a : simt::SimArchitecture::sm_80;
  // Forward, too, where a gradient is what is counted.
  options.emulator.sample_clusters = sample;
  // A persistent kernel's blocks take one tile each, so that a sample of blocks is one of tiles.
  if (sample != 0) options.emulator.multiprocessors = 1U << 24;
  const std::shared_ptr<simt::Runtime> runtime = simt::open_sim(options);
  simt::Emulator& emulator = simt::emulator(*runtime);
  Counted counted;
  {
    Context context(runtime, kInstrumented);
    PassRun run(context, problem, operands);
    emulator.config.sample_clusters = 0;
    simt::RuntimeCounters before;
    run({.begin =
             [&] {
               emulator.config.sample_clusters = sample;
               emulator.reset_counters();
               before = runtime->counters();
             },
         .end =
             [&] {
               emulator.config.sample_clusters = 0;
               counted.launches = emulator.launches();
               counted.runtime = runtime->counters() - before;
             }});
    Allocator host;
    for (const auto& [name, tensor] : run.results()) counted.results[name] = tensor.to(host);
  }
  return counted;
}

std::int64_t whole(std::uint64_t count) { return static_cast<std::int64_t>(count); }

void add_counters(Row& row, const Counted& counted) {
  constexpr auto kCounted = Provenance::counted;
  Counters all;
  for (const LaunchRecord& launch : counted.launches) all += launch.scaled();
  const auto put = [&](const char* name, std::uint64_t count) {
    row.add(name, kCounted, whole(count));
  };
  // What most kernels do not have has no column where none has it.
  const auto put_some = [&](const char* name, std::uint64_t count) {
    if (count != 0) put(name, count);
  };
  const auto detail = [&](const char* name, std::uint64_t count) {
    row.add_detail(name, kCounted, whole(count));
  };
  put("launches", counted.launches.size());
  put("blocks", all.blocks);
  detail("threads", all.threads);
  if (kInstrumented) {
    const std::uint64_t sectors = all.global_load_sectors + all.global_store_sectors;
    const double bytes = 32.0 * static_cast<double>(sectors) + static_cast<double>(all.tma_bytes);
    put("load_sectors", all.global_load_sectors);
    put("store_sectors", all.global_store_sectors);
    detail("load_requests", all.global_load_requests);
    detail("store_requests", all.global_store_requests);
    if (all.tma_bytes != 0) row.add("tma_MB", kCounted, static_cast<double>(all.tma_bytes) * 1e-6);
    row.add("MB", kCounted, bytes * 1e-6);
    if (row.min_bytes > 0) row.add("bytes/minimum", kCounted, bytes / row.min_bytes);
    put("shared_wavefronts", all.shared_load_wavefronts + all.shared_store_wavefronts);
    put("excess_wavefronts", all.shared_excess_wavefronts);
  }
  put_some("mma", all.mma);
  put_some("wgmma", all.wgmma);
  put_some("ldmatrix", all.ldmatrix);
  put_some("stmatrix", all.stmatrix);
  put_some("cp_async", all.cp_async);
  put_some("tma", all.tma);
  put("barriers", all.barriers);
  detail("warp_syncs", all.warp_syncs);
  detail("shuffles", all.shuffles);
  detail("atomics", all.atomics);
  put("syncs", static_cast<std::uint64_t>(counted.runtime.synchronisations));
  detail("allocations", static_cast<std::uint64_t>(counted.runtime.allocations));
  std::size_t ran = 0, clusters = 0;
  for (const LaunchRecord& launch : counted.launches) {
    ran += launch.ran;
    clusters += launch.clusters;
  }
  detail("clusters", clusters);
  detail("clusters_run", ran);
}

// "2 of 2048 clusters of gemm, counters scaled"; empty where all ran.
std::string sample_text(const std::vector<LaunchRecord>& launches) {
  std::string text;
  for (const LaunchRecord& l : launches) {
    if (l.ran == l.clusters) continue;
    const bool clusters = l.launch.cluster.count() > 1;
    text += concat(text.empty() ? "" : ", ", l.ran, " of ", l.clusters,
                   clusters ? " clusters of " : " blocks of ", l.launch.name);
  }
  return text.empty() ? text : text + "; counters scaled";
}

// Blocks of products take long, rows are quickly done.
std::size_t sample_of(const Problem& problem, const SimSettings& sim) {
  if (is_small(problem)) return 0;
  if (sim.sample != 0) return sim.sample;
  return problem.is_product() ? 2 : 64;
}

// Verifies, then counts.
void run_row(Row& row, const Problem& problem, const RunSettings& settings,
             const SimSettings& sim) {
  const std::size_t sample = sample_of(problem, sim);
  const Operands operands = make_operands(problem, settings.seed);
  if (sample != 0) {
    const Problem small = reduced(problem);
    const Operands few = make_operands(small, settings.seed);
    const Verdict v = verify_all(small, few, count(small, few, sim.capability, 0).results);
    row.verified = concat(small.text(), ": ", v.text);
    row.broken = !v.holds;
    if (row.broken) return;
  }
  const Counted counted = count(problem, operands, sim.capability, sample);
  row.sample = sample_text(counted.launches);
  // The parts of a sum that is cut are whole only where all blocks ran.
  const bool comparable = problem.is_product() && counted.launches.size() == 1;
  if (row.sample.empty() || comparable) {
    const Verdict v = row.sample.empty() ? verify_all(problem, operands, counted.results)
                                         : verify_written(problem, operands, counted.results);
    row.verified += concat(row.verified.empty() ? "" : "; of the sample ", v.text);
    row.broken = !v.holds;
    if (row.broken) return;
  }
  add_counters(row, counted);
}

}  // namespace

std::string refusal(const Problem& problem, ProductKernel kernel, int capability) {
  if (kernel == ProductKernel::automatic) return {};
  const Problem small = reduced(with_kernel(problem, kernel));
  try {
    (void)count(small, make_operands(small, 1), capability, 1);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

Report run_on_sim(const std::vector<Problem>& problems, const RunSettings& settings,
                  const SimSettings& sim) {
  Report report;
  for (const Problem& problem : problems)
    for (const ProductKernel kernel : settings.kernels(problem)) {
      settings.tell(problem, kernel);
      Row row = begin_row(problem, kernel);
      try {
        run_row(row, with_kernel(problem, kernel), settings, sim);
      } catch (const simt::KernelFault& fault) {
        row.broken = true;
        row.verified = fault.what();
      } catch (const UsageError&) {
        throw;
      } catch (const Error& error) {
        if (kernel == ProductKernel::automatic) throw;
        row.refusal = error.what();
      }
      if (!row.broken && row.refusal.empty()) add_predictions(row, problem, kernel);
      report.rows.push_back(std::move(row));
    }
  report.notes.push_back(concat(
      "counted on sim (", sim.capability >= 90 ? "sm_90a" : "sm_80",
      "): what the kernels do, not how fast a GPU does it; no figure here is a time on a GPU"));
  if (!kInstrumented)
    report.notes.emplace_back(
        "memory requests are not counted: this build has no instrumented kernels");
  return report;
}

}  // namespace roundoff::bench

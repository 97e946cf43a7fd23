// Kernels on the emulator, counted. Nothing here is a time.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "bench/chosen.h"
#include "bench/code.h"
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

// What the host does in a pass, by the fast kernels and in the second run of it: the instrumented
// ones have memory of their own for every tensor, given back at once, which is waiting and
// allocating.
simt::RuntimeCounters count_host(const Problem& problem, const Operands& operands, int capability,
                                 std::size_t sample) {
  simt::SimOptions options;
  options.emulator.architecture =
      capability >= 90 ? simt::SimArchitecture::sm_90a : simt::SimArchitecture::sm_80;
  options.emulator.sample_clusters = sample;
  const std::shared_ptr<simt::Runtime> runtime = simt::open_sim(options);
  Context context(runtime, false);
  PassRun run(context, problem, operands);
  run();
  simt::RuntimeCounters before, after;
  run({.begin = [&] { before = runtime->counters(); },
       .end = [&] { after = runtime->counters(); }});
  return after - before;
}

// A sum longer than this is counted at two depths and extrapolated: a block of it would take long.
constexpr std::int64_t kDeepest = 8192, kStep = 2048;

// Which of a product's sizes its sums run over; none for the gradient of weights, whose long sums
// are cut into parts, and for convolutions.
std::optional<std::size_t> depth_of(const Problem& p) {
  if (!p.product || p.pass == BenchPass::wgrad || p.pass == BenchPass::backward)
    return std::nullopt;
  return p.sizes.size() - (p.pass == BenchPass::forward ? 1 : 2);
}

Problem at_depth(const Problem& p, std::size_t which, std::int64_t depth) {
  std::vector<std::int64_t> sizes = p.sizes;
  sizes[which] = depth;
  return resized(p, sizes);
}

// From counts at two depths those of `steps` steps beyond the first.
Counters extrapolated(const Counters& one, const Counters& two, std::uint64_t steps) {
  constexpr std::size_t kFields = sizeof(Counters) / sizeof(std::uint64_t);
  static_assert(std::is_trivially_copyable_v<Counters> &&
                sizeof(Counters) % sizeof(std::uint64_t) == 0);
  std::array<std::uint64_t, kFields> a, b;
  std::memcpy(a.data(), &one, sizeof(one));
  std::memcpy(b.data(), &two, sizeof(two));
  for (std::size_t i = 0; i < kFields; ++i) a[i] += (b[i] - a[i]) * steps;
  Counters all;
  std::memcpy(static_cast<void*>(&all), a.data(), sizeof(all));
  return all;
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

// The functions behind launches, which are named by their operation: a product's kernels bear the
// name of their rung.
std::vector<LaunchedKernel> kernels_of(const std::vector<LaunchRecord>& launches,
                                       const Problem& problem, ProductKernel kernel) {
  std::vector<LaunchedKernel> all;
  for (const LaunchRecord& l : launches) {
    const int threads = static_cast<int>(l.launch.block.count());
    const int shared = static_cast<int>(l.launch.shared);
    all.push_back({l.launch.name, threads, shared});
    if (!problem.is_product()) continue;
    const std::string_view rung =
        kernel == ProductKernel::ping_pong ? name(ProductKernel::sm90) : name(kernel);
    for (const char* family : {"product_", "conv2d_"})
      all.push_back({concat(family, rung), threads, shared});
  }
  return all;
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

// Takes `counted` from the depth of `shallow` to that of the problem.
void extrapolate(Row& row, Counted& counted, const Problem& problem, const Problem& shallow,
                 std::size_t depth, const RunSettings& settings, const SimSettings& sim) {
  const std::int64_t first = shallow.sizes[depth], second = first + kStep;
  const Problem further = at_depth(problem, depth, second);
  const Counted two = count(further, make_operands(further, settings.seed), sim.capability,
                            sample_of(problem, sim));
  bool alike = two.launches.size() == counted.launches.size();
  for (std::size_t i = 0; alike && i < two.launches.size(); ++i)
    alike = two.launches[i].clusters == counted.launches[i].clusters;
  ROUNDOFF_CHECK(alike, "bench", problem.text(),
                 ": its grids depend on the depth, so that counts at ", first, " and ", second,
                 " say nothing of it; choose smaller sizes");
  const auto steps = static_cast<std::uint64_t>((problem.sizes[depth] - first) / kStep);
  for (std::size_t i = 0; i < two.launches.size(); ++i)
    counted.launches[i].counters =
        extrapolated(counted.launches[i].counters, two.launches[i].counters, steps);
  row.sample += concat(row.sample.empty() ? "" : "; ", "extrapolated from sums of ", first, " and ",
                       second, " products");
}

// Verifies, then counts. `rung`: the kernel that runs, where that is known.
void run_row(Row& row, const Problem& problem, ProductKernel rung, const RunSettings& settings,
             const SimSettings& sim) {
  const std::size_t sample = sample_of(problem, sim);
  const std::optional<std::size_t> depth = sample == 0 ? std::nullopt : depth_of(problem);
  const bool deep = depth && problem.sizes[*depth] > kDeepest;
  const Problem shallow =
      deep ? at_depth(problem, *depth, kStep + problem.sizes[*depth] % kStep) : problem;
  const Operands operands = make_operands(shallow, settings.seed);
  if (sample != 0) {
    const Problem small = reduced(problem);
    const Operands few = make_operands(small, settings.seed);
    const Verdict v = verify_all(small, few, count(small, few, sim.capability, 0).results);
    row.verified = concat(small.text(), ": ", v.text);
    row.broken = !v.holds;
    if (row.broken) return;
  }
  Counted counted = count(shallow, operands, sim.capability, sample);
  counted.runtime = count_host(shallow, operands, sim.capability, sample);
  row.sample = sample_text(counted.launches);
  // The parts of a sum that is cut are whole only where all blocks ran.
  const bool comparable = problem.is_product() && counted.launches.size() == 1;
  if (row.sample.empty() || comparable) {
    const Verdict v = row.sample.empty() ? verify_all(shallow, operands, counted.results)
                                         : verify_written(shallow, operands, counted.results);
    row.verified += concat(row.verified.empty() ? "" : "; of the sample ", v.text);
    row.broken = !v.holds;
    if (row.broken) return;
  }
  if (deep) extrapolate(row, counted, problem, shallow, *depth, settings, sim);
  add_counters(row, counted);
  CodeCensus::of_program().add_to(row, kernels_of(counted.launches, problem, rung), sim.capability);
}

}  // namespace

std::string refusal(const Problem& problem, ProductKernel kernel, int capability) {
  if (kernel == ProductKernel::automatic) return {};
  const Problem small = reduced(with_kernel(problem, kernel));
  try {
    (void)count(small, make_operands(small, 1), capability, 1);
  } catch (const simt::KernelFault&) {
    throw;
  } catch (const Error& error) {
    return reason_of(error.what());
  }
  return {};
}

Report run_on_sim(const std::vector<Problem>& problems, const RunSettings& settings,
                  const SimSettings& sim) {
  Report report;
  for (const Problem& problem : problems)
    for (const ProductKernel kernel : settings.kernels(problem)) {
      settings.tell(problem, kernel);
      const std::optional<ProductKernel> chosen =
          kernel == ProductKernel::automatic ? chosen_kernel(problem, sim.capability) : kernel;
      Row row = begin_row(problem, kernel, chosen);
      const ProductKernel rung = chosen.value_or(kernel);
      try {
        run_row(row, with_kernel(problem, kernel), rung, settings, sim);
      } catch (const simt::KernelFault& fault) {
        row.broken = true;
        row.verified = fault.what();
      } catch (const UsageError&) {
        throw;
      } catch (const Error& error) {
        if (kernel == ProductKernel::automatic) throw;
        row.refusal = reason_of(error.what());
      }
      if (!row.broken && row.refusal.empty()) add_predictions(row, problem, rung);
      report.rows.push_back(std::move(row));
    }
  report.notes.push_back(concat(
      "counted on sim (", sim.capability >= 90 ? "sm_90a" : "sm_80",
      "): what the kernels do, not how fast a GPU does it; no figure here is a time on a GPU"));
  if (CodeCensus::of_program().empty())
    report.notes.emplace_back(
        "registers, occupancy and instructions of the machine code: not in this build: no nvcc");
  if (!kInstrumented)
    report.notes.emplace_back(
        "memory requests are not counted: this build has no instrumented kernels");
  return report;
}

}  // namespace roundoff::bench

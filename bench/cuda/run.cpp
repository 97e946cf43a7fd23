#include "bench/cuda/run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/chosen.h"
#include "bench/cuda/implementation.h"
#include "bench/verify.h"
#include "verify/ladder.h"
#include "verify/reference.h"

namespace roundoff::bench {

namespace {

// What is opened once for all problems.
struct Opened {
  Opened(const Bench& b, const RunSettings& settings)
      : bench(b), nvml(b.vendor.folders, b.gpu.bus_id, b.nvml) {
    if (settings.baseline) vendor = std::make_unique<VendorLibrary>(b.runtime, b.vendor);
    gpu = b.gpu;
    if (const auto mhz = nvml.max_sm_mhz()) gpu.clock = std::max(gpu.clock, *mhz * 1e6);
    flush = simt::DeviceBuffer(b.runtime, static_cast<std::size_t>(3 * gpu.l2_bytes));
    copy = b.copy_bytes == 0 ? 0 : copy_bandwidth(b.runtime, *b.stopwatch, b.copy_bytes);
  }
  const Bench& bench;
  Nvml nvml;
  std::unique_ptr<VendorLibrary> vendor;
  simt::GpuLimits gpu;
  simt::DeviceBuffer flush;
  double copy = 0;
};

// A row and what runs for it.
struct Entry {
  Row row;
  std::unique_ptr<Implementation> implementation{};
  GpuReading reading{};
  Timing timing{};
};

bool is_vendor(const Entry& e, const Opened& o) {
  return o.vendor != nullptr &&
         (e.row.kernel == o.vendor->name_for(false) || e.row.kernel == o.vendor->name_for(true));
}

// An error of the program or of the device, not a kernel that takes something else.
bool is_fatal(const Error& error) {
  return dynamic_cast<const UsageError*>(&error) != nullptr ||
         dynamic_cast<const simt::DeviceAbsent*>(&error) != nullptr ||
         std::strncmp(error.what(), "[cuda]", 6) == 0;
}

// Of a product that is not small, some elements; of anything else that is not, the reduced problem.
Verdict judge(const Problem& problem, const Operands& operands, const NamedTensors& results,
              std::uint64_t seed, const Opened& o) {
  if (is_small(problem)) return verify_all(problem, operands, results, o.bench.device_core);
  if (problem.is_product()) return verify_sampled(problem, operands, results, o.bench.device_core);
  const Problem small = reduced(problem);
  const Operands few = make_operands(small, seed);
  Implementation run(o.bench.runtime, small, few, nullptr, 1);
  Verdict v = verify_all(small, few, run.run(), o.bench.device_core);
  v.text = concat(small.text(), ": ", v.text);
  return v;
}

bool same_bits(const NamedTensors& a, const NamedTensors& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, t] : a) {
    const auto found = b.find(name);
    if (found == b.end() || found->second.bytes() != t.bytes()) return false;
    if (t.bytes() != 0 && std::memcmp(found->second.raw(), t.raw(), t.bytes()) != 0) return false;
  }
  return true;
}

// Whether `ours` gives the vendor's bits for whole numbers.
void compare_exactly(Entry& ours, const Problem& ours_problem, const Problem& problem,
                     const Operands& whole, const NamedTensors& expected, const Opened& o) {
  if (expected.empty()) return;
  Implementation exact(o.bench.runtime, ours_problem, whole, nullptr, 1);
  if (same_bits(exact.run(), expected)) {
    ours.row.verified += concat("; whole numbers: every element equals ",
                                o.vendor->name_for(problem.conv.has_value()), "'s");
  } else {
    ours.row.verified += concat("; whole numbers: other bits than ",
                                o.vendor->name_for(problem.conv.has_value()), "'s");
    ours.row.broken = true;
  }
}

void add_figures(Entry& e, const Entry* vendor, const Problem& problem, const Rotation& rotated,
                 const Opened& o) {
  const Provenance times = o.bench.times;
  Row& row = e.row;
  const Spread s = e.timing.seconds();
  const Ceilings ceilings{.peak_flops = peak_flops(o.gpu, problem.dtype, false),
                          .peak_bytes = o.gpu.memory_bandwidth,
                          .copy_bandwidth = o.copy};
  // What a replay writes last may still be in the cache when its clock stops.
  const double moved = std::max(0.0, row.min_bytes * rotated.sets - o.gpu.l2_bytes);
  try {
    refuse_above_peak(row, row.flops / s.median, ceilings.peak_flops,
                      moved / (s.median * rotated.sets), ceilings.peak_bytes);
  } catch (const Error& error) {
    row.broken = true;
    row.verified = error.what();
    return;
  }
  row.add("us", times, s.median * 1e6, "us");
  row.add("us_low", times, s.low * 1e6, "us");
  row.add("us_high", times, s.high * 1e6, "us");
  if (row.flops > 0) row.add("TFLOP/s", times, row.flops / s.median * 1e-12);
  if (row.min_bytes > 0) row.add("GB/s", times, row.min_bytes / s.median * 1e-9);
  if (vendor != nullptr && vendor != &e) {
    const Spread r = ratio(vendor->timing, e.timing);
    row.add("vs_vendor", times, r.median, "x");
    row.add("vs_vendor_low", times, r.low, "x");
    row.add("vs_vendor_high", times, r.high, "x");
  }
  const double floor = floor_seconds(ceilings, row.flops, row.min_bytes);
  if (floor > 0) row.add("of_ceiling", times, floor / s.median);
  row.add("rounds", Provenance::counted, static_cast<std::int64_t>(e.timing.rounds.size()));
  const GpuReading& r = e.reading;
  if (r.sm_mhz) row.add("SM_MHz", times, *r.sm_mhz, "MHz");
  if (r.memory_mhz) row.add("memory_MHz", times, *r.memory_mhz, "MHz");
  if (r.watts) row.add("W", times, *r.watts, "W");
  if (r.celsius) row.add("C", times, *r.celsius, "C");
  if (const std::string text = throttle_text(r.throttled); !text.empty())
    row.add("held_back_by", times, text);
}

void run_problem(Report& report, const Problem& problem, const RunSettings& settings, Opened& o) {
  const std::vector<ProductKernel> kernels = settings.kernels(problem);
  const bool baseline = o.vendor != nullptr && problem.is_product();
  const Rotation rotated =
      rotation(problem.footprint(), o.gpu.l2_bytes,
               0.6 * o.gpu.free_memory / static_cast<double>(kernels.size() + (baseline ? 1 : 0)));
  const Operands operands = make_operands(problem, settings.seed);
  std::vector<Entry> entries;

  // The vendor's first: its results for whole numbers are what ours are compared with.
  NamedTensors whole_results;
  Operands whole;
  if (baseline) {
    const bool convolution = problem.conv.has_value();
    settings.tell(problem, ProductKernel::automatic);
    Entry e{.row = begin_row(problem, ProductKernel::automatic)};
    e.row.kernel = o.vendor->name_for(convolution);
    e.row.refusal = o.vendor->refusal_for(convolution);
    if (e.row.refusal.empty()) {
      e.implementation = std::make_unique<Implementation>(o.bench.runtime, problem, operands,
                                                          o.vendor.get(), rotated.sets);
      o.vendor->reset_log();  // of what a gradient's forward pass asked for
      const NamedTensors results = e.implementation->run();
      e.row.refusal = o.vendor->log().declined_text();
      if (e.row.refusal.empty() && o.vendor->log().taken == 0) e.row.refusal = "was never asked";
      if (e.row.refusal.empty()) {
        const Verdict v = judge(problem, operands, results, settings.seed, o);
        e.row.verified = v.text;
        e.row.broken = !v.holds;
        if (v.holds) {
          e.implementation->capture(results);
          whole = whole_operands(problem, settings.seed);
          whole_results = Implementation(o.bench.runtime, problem, whole, o.vendor.get(), 1).run();
        }
      }
    }
    entries.push_back(std::move(e));
  }
  for (const ProductKernel kernel : kernels) {
    settings.tell(problem, kernel);
    std::optional<ProductKernel> chosen = kernel;
    if (kernel == ProductKernel::automatic) chosen = chosen_kernel(problem, o.gpu.capability);
    Entry e{.row = begin_row(problem, kernel, chosen)};
    const Problem named = with_kernel(problem, kernel);
    try {
      e.implementation =
          std::make_unique<Implementation>(o.bench.runtime, named, operands, nullptr, rotated.sets);
      const NamedTensors results = e.implementation->run();
      const Verdict v = judge(named, operands, results, settings.seed, o);
      e.row.verified = v.text;
      e.row.broken = !v.holds;
      if (v.holds) compare_exactly(e, named, problem, whole, whole_results, o);
      if (!e.row.broken) e.implementation->capture(results);
    } catch (const Error& error) {
      if (kernel == ProductKernel::automatic || is_fatal(error)) throw;
      e.row.refusal = error.what();
    }
    entries.push_back(std::move(e));
  }

  // In turns.
  std::vector<Replay> replays;
  std::vector<std::size_t> timed;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& e = entries[i];
    if (!e.row.refusal.empty() || e.row.broken) continue;
    Replay r = e.implementation->replay();
    if (rotated.flushes)
      r.prepare = [&, stream = r.stream] { stream->fill(o.flush.data(), 0x5A, o.flush.bytes()); };
    replays.push_back(std::move(r));
    timed.push_back(i);
  }
  const std::vector<Timing> timings =
      take_turns(replays, *o.bench.stopwatch, o.bench.timing,
                 [&](std::size_t i) { entries[timed[i]].reading = o.nvml.read(); });
  for (std::size_t i = 0; i < timed.size(); ++i) entries[timed[i]].timing = timings[i];
  const Entry* vendor = nullptr;
  for (const std::size_t i : timed)
    if (is_vendor(entries[i], o)) vendor = &entries[i];
  for (const std::size_t i : timed) add_figures(entries[i], vendor, problem, rotated, o);
  // Ours first in the table.
  if (baseline) std::rotate(entries.begin(), entries.begin() + 1, entries.end());
  for (Entry& e : entries) report.rows.push_back(std::move(e.row));
}

void add_notes(Report& report, const RunSettings& settings, const Opened& o) {
  const simt::DeviceDescription& d = o.bench.runtime->description();
  const auto note = [&](std::string text) { report.notes.push_back(std::move(text)); };
  const bool measured = o.bench.times == Provenance::measured;
  note(concat(measured ? "measured on " : "not measured: a test's clock on ", d.name, " (sm_",
              o.gpu.capability, ", ", o.gpu.multiprocessors, " multiprocessors, ", d.driver,
              o.nvml.driver().empty() ? "" : ", driver ", o.nvml.driver(), ")"));
  note(
      "medians of replayed graphs by events, quartiles beside them; contenders take turns in one "
      "process; normally distributed operands; arrays rotate so that 3 times the L2 cache lies "
      "between two uses, or the cache is overwritten before each replay");
  note("vs_vendor: the vendor's time over ours, of the same rounds; above 1 ours is faster");
  note(concat("of_ceiling: the least time over the measured one; by ",
              o.copy > 0 ? concat("a copy's ", o.copy * 1e-9, " GB/s (",
                                  measured ? "measured" : "a test's clock", ")")
                         : std::string("no copy"),
              " and by ", peak_flops(o.gpu, DType::bf16, false) * 1e-12,
              " TFLOP/s of 16-bit products (highest clock, ", o.gpu.clock * 1e-6,
              " MHz, times multiprocessors times rate: stated); a rate above a stated peak is "
              "refused"));
  if (!o.nvml.usable()) note(concat("no clocks and no power: ", o.nvml.why_not()));
  if (settings.baseline)
    for (const bool convolution : {false, true})
      note(concat(o.vendor->name_for(convolution), ": ",
                  o.vendor->refusal_for(convolution).empty() ? std::string("loaded")
                                                             : o.vendor->refusal_for(convolution)));
  if (settings.baseline)
    note(
        "what is no product has no vendor's counterpart here: its ceiling is what it is held "
        "against");
}

}  // namespace

Operands whole_operands(const Problem& problem, std::uint64_t seed) {
  Operands all = make_operands(problem, seed);
  // As many terms as the longest sum of any pass has.
  std::int64_t terms = 1;
  if (problem.product)
    terms = std::max({problem.product->m, problem.product->n, problem.product->k, terms});
  if (problem.conv) terms = std::max(problem.c.terms, terms);
  const Format sums = problem.dtype == DType::fp64 ? kFp64 : kFp32;
  // The result is rounded once from the exact sum, to the same number by all.
  const std::int64_t limit =
      std::min<std::int64_t>(2, exact_integer_limit(terms, format_of(problem.dtype), sums, sums));
  RandomStream random(seed, RandomUse::checks, 0x3A01E);
  Allocator host;
  const auto fill = [&](Tensor& t) {
    if (!t.defined() || !is_floating(t.dtype())) return;
    constexpr std::int64_t kPeriod = 65521;
    std::vector<double> few;
    for (std::int64_t i = 0; i < std::min(kPeriod, t.numel()); ++i) {
      const auto size = static_cast<double>(
          limit < 1
              ? 0
              : 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(limit))));
      few.push_back(random.below(2) == 0 ? size : -size);
    }
    const Tensor base =
        Tensor::from(host, few, Shape{static_cast<std::int64_t>(few.size())}, t.dtype());
    Tensor whole = Tensor::empty(host, t.shape(), t.dtype());
    auto* to = static_cast<std::byte*>(whole.raw());
    for (std::size_t at = 0; at < whole.bytes(); at += base.bytes())
      std::memcpy(to + at, base.raw(), std::min(base.bytes(), whole.bytes() - at));
    t = whole;
  };
  for (auto& [name, t] : all.inputs) fill(t);
  fill(all.dy);
  return all;
}

Report run_on(const Bench& bench, const std::vector<Problem>& problems,
              const RunSettings& settings) {
  ROUNDOFF_CHECK(bench.times != Provenance::measured || bench.runtime->device() == Device::cuda,
                 "bench", "a time on the emulator is no measurement of a GPU");
  Opened opened(bench, settings);
  Report report;
  for (const Problem& problem : problems) run_problem(report, problem, settings, opened);
  add_notes(report, settings, opened);
  return report;
}

Bench open_gpu(int ordinal, std::vector<std::filesystem::path> folders) {
  Bench b;
  b.runtime = simt::open(Device::cuda, ordinal);
  b.stopwatch = std::make_shared<EventStopwatch>(b.runtime);
  b.gpu = simt::gpu_limits(ordinal);
  b.vendor.folders = std::move(folders);
#if defined(ROUNDOFF_CUDA_LIBRARIES)
  b.vendor.folders.emplace_back(ROUNDOFF_CUDA_LIBRARIES);  // of the toolkit of this build
#endif
  b.device_core = device_tensor_core(Device::cuda, b.gpu.capability);
  return b;
}

Report run_on_cuda(const std::vector<Problem>& problems, const RunSettings& settings) {
  return run_on(open_gpu(), problems, settings);
}

}  // namespace roundoff::bench

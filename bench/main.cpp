// roundoff_bench: what this machine computes how fast, as ratios of things that take turns.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/gemm.h"
#include "bench/measure.h"
#include "bench/training.h"
#include "kernels/gemm/product.h"

namespace {

using namespace roundoff;
using namespace roundoff::bench;
using nlohmann::ordered_json;

struct Options {
  std::vector<std::string> parts{"gemm", "train"};
  std::vector<std::int64_t> sizes{64, 128, 256, 512, 1024};
  MeasureSettings measure;
  std::string json;
  bool serve = false;
};

ordered_json number_with_spread(const Spread& s, double factor = 1) {
  return {{"median", s.median * factor}, {"low", s.low * factor}, {"high", s.high * factor}};
}

// ---- products

ordered_json run_gemm(const Options& o) {
  ordered_json rows = ordered_json::array();
  std::printf(
      "\nProducts C = A B of n x n matrices. Ratios: time of the second over time of the first\n");
  std::printf("%6s  %-14s %10s   %-28s %-28s\n", "n", "", "GFLOP/s", "over fp32: x",
              "over Eigen's own: x");
  for (const std::int64_t n : o.sizes) {
    const std::vector<Contender> contenders = gemm_contenders(n);
    const std::vector<Timing> timings = measure(contenders, o.measure);
    std::map<std::string, std::size_t> at;
    for (std::size_t i = 0; i < contenders.size(); ++i) at[contenders[i].name] = i;
    const double flops =
        2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const std::string& name = contenders[i].name;
      const Spread seconds = timings[i].seconds();
      ordered_json row{{"provenance", "measured"},
                       {"n", n},
                       {"product", name},
                       {"seconds", number_with_spread(seconds)},
                       {"gflops", flops / seconds.median * 1e-9}};
      std::string over_fp32, over_eigen;
      const auto compare = [&](const std::string& other, const char* key) {
        const Spread r = ratio(timings[at[other]], timings[i]);
        row[key] = number_with_spread(r);
        char text[64];
        std::snprintf(text, sizeof(text), "%7.2f  (%.2f to %.2f)", r.median, r.low, r.high);
        return std::string(text);
      };
      if (name != "fp32") over_fp32 = compare("fp32", "speed_over_fp32");
      if (at.count(name + " (Eigen)") != 0)
        over_eigen = compare(name + " (Eigen)", "speed_over_eigen");
      std::printf("%6lld  %-14s %10.2f   %-28s %-28s\n", static_cast<long long>(n), name.c_str(),
                  flops / seconds.median * 1e-9, over_fp32.c_str(), over_eigen.c_str());
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// ---- training steps

ordered_json run_training(const Options& o) {
  ordered_json rows = ordered_json::array();
  std::printf("\nTraining steps: forward, cross-entropy, backward, AdamW\n");
  std::printf("%-16s %12s   %-26s %-24s\n", "", "us a step", "quartiles", "time over fp32's");
  std::vector<Contender> contenders;
  const std::vector<TrainingCase> cases = training_cases();
  for (const TrainingCase& c : cases)
    contenders.push_back(
        {c.name(), [step = std::make_shared<TrainingStep>(c.model, c.precision)] { (*step)(); }});
  const std::vector<Timing> timings = measure(contenders, o.measure);
  std::size_t fp32 = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].precision == Precision::fp32) fp32 = i;
    const Spread s = timings[i].seconds();
    const Spread r = ratio(timings[i], timings[fp32]);
    std::printf("%-16s %12.2f   %10.2f to %-12.2f %6.2f  (%.2f to %.2f)\n",
                contenders[i].name.c_str(), s.median * 1e6, s.low * 1e6, s.high * 1e6, r.median,
                r.low, r.high);
    rows.push_back({{"provenance", "measured"},
                    {"model", cases[i].model},
                    {"precision", name(cases[i].precision)},
                    {"seconds", number_with_spread(s)},
                    {"time_over_fp32", number_with_spread(r)}});
  }
  return rows;
}

// One line in, one line out: "MODEL PRECISION SECONDS" gives seconds a step, measured over about
// SECONDS. For a program that takes turns with this one.
int serve() {
  std::map<std::string, TrainingStep> steps;
  std::string model, precision;
  double seconds = 0;
  while (std::cin >> model >> precision >> seconds) {
    const std::string name = concat(model, ' ', precision);
    auto found = steps.find(name);
    if (found == steps.end())
      found = steps.try_emplace(name, model, parse_precision(precision)).first;
    std::cout << one_turn([&] { found->second(); }, seconds) << std::endl;
  }
  return 0;
}

int run(const Options& o) {
  if (o.serve) return serve();
  std::printf(
      "Measured on one thread, processor time, medians of %d turns of %g s (quartiles); products "
      "by %s\n",
      o.measure.rounds, o.measure.turn_seconds, std::string(product_backend()).c_str());
  ordered_json report{{"provenance", "measured"},
                      {"products_by", product_backend()},
                      {"rounds", o.measure.rounds},
                      {"turn_seconds", o.measure.turn_seconds}};
  for (const std::string& part : o.parts) {
    if (part == "gemm") report["gemm"] = run_gemm(o);
    if (part == "train") report["train"] = run_training(o);
  }
  if (o.json == "-") {
    std::cout << report.dump(2) << '\n';
  } else if (!o.json.empty()) {
    std::ofstream file(o.json);
    file << report.dump(2) << '\n';
    ROUNDOFF_CHECK(file.good(), "bench", "cannot write '", o.json, "'");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures products and training steps on this machine's processor, one thread.");
  Options o;
  app.add_option("parts", o.parts, "gemm, train; both where none is named")
      ->check(CLI::IsMember({"gemm", "train"}));
  app.add_option("--size", o.sizes, "sizes of the products")->check(CLI::Range(1, 8192));
  app.add_option("--rounds", o.measure.rounds, "turns of each contender")
      ->check(CLI::Range(1, 100000));
  app.add_option("--seconds", o.measure.turn_seconds, "length of a turn")
      ->check(CLI::Range(1e-6, 60.0));
  app.add_option("--json", o.json, "write the results to this file, - for standard output");
  app.add_flag("--serve", o.serve, "measure what standard input asks for (bench/peer_torch.py)");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(o);
  } catch (const Error& error) {
    std::cerr << "roundoff_bench: " << error.what() << '\n';
    return 1;
  }
}

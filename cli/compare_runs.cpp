#include "cli/compare_runs.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "engine/metrics.h"
#include "study/statistics.h"

namespace roundoff::cli {

namespace {

using study::Figure;
using study::MeanInterval;
using study::Series;

constexpr auto kMeasured = Provenance::measured;
constexpr auto kCounted = Provenance::counted;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// What says how a run was made but not what it computes.
const std::set<std::string> kNoFactor{"seed", "checkpoint-every", "out", "resume"};
const std::set<std::string> kDataAndModel{"data",       "model",   "hidden",
                                          "batch-norm", "dropout", "label-smoothing"};

struct Group {
  std::string label;
  std::vector<const RunFiles*> runs;    // one a seed: the first
  std::vector<std::uint64_t> repeated;  // seeds that came again
};

bool is_cut(const std::string& key) { return key == "micro-batch" || key == "accumulate"; }
bool is_reproducible(const RunFiles& run) { return run.setting("reproducible") == "true"; }
double window_of(const RunFiles& run) {
  return std::strtod(run.setting("micro-batch").c_str(), nullptr) *
         std::strtod(run.setting("accumulate").c_str(), nullptr);
}

// How each window is taken to be cut. A reproducible run has the bits of every cut of its window,
// so it has that of a run which is not reproducible, where there is one, or else all have the
// first's.
using Cuts = std::map<double, const RunFiles*>;
Cuts cuts_of(std::span<const RunFiles> runs) {
  Cuts cuts;
  for (const bool reproducible : {false, true})
    for (const RunFiles& run : runs)
      if (is_reproducible(run) == reproducible) cuts.emplace(window_of(run), &run);
  return cuts;
}

// What a run's results may depend on.
std::string factor(const RunFiles& run, const std::string& key, const Cuts& cuts) {
  if (is_cut(key) && is_reproducible(run)) return cuts.at(window_of(run))->setting(key);
  return run.setting(key);
}

// Shortest names that tell the folders apart.
std::vector<std::string> run_labels(std::span<const RunFiles> runs) {
  std::vector<std::string> labels;
  std::set<std::string> seen;
  bool unique = true;
  for (const RunFiles& run : runs) {
    const std::filesystem::path clean = run.folder.lexically_normal();
    const std::string name =
        (clean.filename().empty() ? clean.parent_path() : clean).filename().string();
    unique = unique && seen.insert(name).second;
    labels.push_back(name);
  }
  if (!unique)
    for (std::size_t i = 0; i < runs.size(); ++i) labels[i] = runs[i].folder.string();
  return labels;
}

std::vector<std::string> differing_keys(std::span<const RunFiles> runs, const Cuts& cuts) {
  std::set<std::string> keys;
  for (const RunFiles& run : runs)
    for (const auto& entry : run.settings) keys.insert(entry.first);
  std::vector<std::string> differing;
  for (const std::string& key : keys) {
    if (kNoFactor.count(key) != 0) continue;
    if (std::any_of(runs.begin(), runs.end(), [&](const RunFiles& run) {
          return factor(run, key, cuts) != factor(runs.front(), key, cuts);
        }))
      differing.push_back(key);
  }
  return differing;
}

std::vector<Group> group_runs(std::span<const RunFiles> runs, const std::vector<std::string>& keys,
                              const Cuts& cuts) {
  std::vector<Group> groups;
  for (const RunFiles& run : runs) {
    std::string label;
    for (const std::string& key : keys) {
      std::string value = factor(run, key, cuts);
      if (value.empty()) value = "default";
      // The precision speaks for itself.
      label += (label.empty() ? "" : ", ") + (key == "precision" ? value : key + "=" + value);
    }
    if (label.empty()) label = run.precision;
    const auto at = std::find_if(groups.begin(), groups.end(),
                                 [&](const Group& group) { return group.label == label; });
    if (at == groups.end()) {
      groups.push_back({label, {&run}, {}});
    } else if (std::none_of(at->runs.begin(), at->runs.end(),
                            [&](const RunFiles* other) { return other->seed == run.seed; })) {
      at->runs.push_back(&run);
    } else if (std::find(at->repeated.begin(), at->repeated.end(), run.seed) ==
               at->repeated.end()) {
      at->repeated.push_back(run.seed);
    }
  }
  return groups;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::vector<std::string> find_warnings(std::span<const RunFiles> runs,
                                       const std::vector<std::string>& keys,
                                       const std::vector<Group>& groups) {
  std::vector<std::string> warnings;
  std::vector<std::string> grave;
  for (const std::string& key : keys)
    if (kDataAndModel.count(key) != 0) grave.push_back(key);
  if (!grave.empty())
    warnings.push_back("the runs differ in their data or model (" + joined(grave) +
                       "): their numbers are of different tasks, and a difference is no effect of "
                       "the precision");
  const bool other_files = std::any_of(runs.begin(), runs.end(), [&](const RunFiles& run) {
    return run.data_sums != runs.front().data_sums;
  });
  if (other_files)
    warnings.emplace_back("the runs' data files differ (environment.json has their checksums)");
  const bool other_test = std::any_of(runs.begin(), runs.end(), [&](const RunFiles& run) {
    return run.test_samples != runs.front().test_samples;
  });
  if (other_test) warnings.emplace_back("the runs were tested on different numbers of samples");
  if (groups.size() > 1 && keys.size() > 1)
    warnings.push_back("the runs differ in more than one setting (" + joined(keys) +
                       "): a difference belongs to all of them together");
  for (const Group& group : groups)
    for (const std::uint64_t seed : group.repeated)
      warnings.push_back(concat("'", group.label, "' has seed ", seed,
                                " more than once; the first of them counts, once"));
  return warnings;
}

Table runs_table(std::span<const RunFiles> runs, const std::vector<std::string>& labels) {
  Table table("Runs side by side", {{"run"},
                                    {"precision"},
                                    {"device"},
                                    {"seed"},
                                    {"updates", kCounted},
                                    {"skipped", kCounted},
                                    {"final scale", kCounted, 0},
                                    {"train loss", kMeasured, 4},
                                    {"test loss", kMeasured, 4},
                                    {"val accuracy", kMeasured, 4, "%"},
                                    {"test accuracy", kMeasured, 4, "%"},
                                    {"low", kMeasured, 4, "%"},
                                    {"high", kMeasured, 4, "%"},
                                    {"first gradient norm", kMeasured, 4},
                                    {"activations", kCounted, 3, "MiB"},
                                    {"time", kMeasured, 3, "s"}});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunFiles& r = runs[i];
    const auto correct = static_cast<std::int64_t>(
        std::llround(r.test_accuracy * static_cast<double>(r.test_samples)));
    const Interval interval =
        wilson_interval(std::clamp<std::int64_t>(correct, 0, r.test_samples), r.test_samples);
    table.add_row({labels[i], r.precision, r.device, static_cast<std::int64_t>(r.seed),
                   static_cast<std::int64_t>(r.updates), static_cast<std::int64_t>(r.skipped),
                   r.final_scale, r.train_loss, r.test_loss, 100 * r.val_accuracy,
                   100 * r.test_accuracy, 100 * interval.low, 100 * interval.high,
                   r.first_grad_norm, r.activation_bytes / (1024 * 1024), r.seconds});
  }
  table.add_note(
      "low and high: Wilson's 95% interval of the test accuracy over the test samples; it covers "
      "the choice of samples, not of the seed");
  table.add_note("test numbers are of the weights with the best validation loss");
  return table;
}

Table settings_table(std::span<const RunFiles> runs, const std::vector<std::string>& labels,
                     const std::vector<std::string>& keys) {
  std::vector<Column> columns{{"run"}, {"seed"}};
  for (const std::string& key : keys) columns.push_back({key});
  Table table("Settings that differ", columns);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<Cell> row{labels[i], std::to_string(runs[i].seed)};
    for (const std::string& key : keys) row.emplace_back(runs[i].setting(key));
    table.add_row(std::move(row));
  }
  return table;
}

struct Measure {
  const char* name;
  const char* unit;
  double factor;
  double RunFiles::*value;
};
constexpr Measure kMeasures[] = {
    {"test accuracy", "%", 100, &RunFiles::test_accuracy},
    {"validation accuracy", "%", 100, &RunFiles::val_accuracy},
    {"test loss", "nats", 1, &RunFiles::test_loss},
    {"training loss", "nats", 1, &RunFiles::train_loss},
};

Cell end_of(const MeanInterval& m, double factor, bool low) {
  if (!m.interval) return {};
  return factor * (low ? m.interval->low : m.interval->high);
}

std::string interval_note(std::int64_t n) {
  if (n == 0) return "no seed in common";
  return n == 1 ? "one seed: no interval" : "";
}

Table groups_table(const std::vector<Group>& groups) {
  Table table("Over seeds", {{"group"},
                             {"measure"},
                             {"unit"},
                             {"n", kCounted},
                             {"mean", kMeasured, 5},
                             {"low", kMeasured, 5},
                             {"high", kMeasured, 5},
                             {"deviation", kMeasured, 3},
                             {"remark"}});
  for (const Group& group : groups)
    for (const Measure& measure : kMeasures) {
      std::vector<double> values;
      for (const RunFiles* run : group.runs) values.push_back(run->*measure.value);
      const MeanInterval m = study::mean_interval(values);
      Cell deviation;
      if (m.n > 1) deviation = measure.factor * m.deviation;
      table.add_row({group.label, std::string(measure.name), std::string(measure.unit), m.n,
                     measure.factor * m.mean, end_of(m, measure.factor, true),
                     end_of(m, measure.factor, false), deviation, interval_note(m.n)});
    }
  table.add_note("low and high: Student's 95% interval of the mean over seeds");
  return table;
}

struct Pairs {
  std::vector<double> a, b;
};
Pairs pair_up(const Group& a, const Group& b, double RunFiles::*value) {
  Pairs pairs;
  for (const RunFiles* other : b.runs) {
    const auto at = std::find_if(a.runs.begin(), a.runs.end(),
                                 [&](const RunFiles* run) { return run->seed == other->seed; });
    if (at == a.runs.end()) continue;
    pairs.a.push_back((*at)->*value);
    pairs.b.push_back(other->*value);
  }
  return pairs;
}

Table differences_table(const std::vector<Group>& groups) {
  Table table(concat("Paired differences from ", groups.front().label),
              {{"group"},
               {"measure"},
               {"unit"},
               {"n", kCounted},
               {"difference", kMeasured, 3},
               {"low", kMeasured, 3},
               {"high", kMeasured, 3},
               {"remark"}});
  for (std::size_t g = 1; g < groups.size(); ++g)
    for (const Measure& measure : kMeasures) {
      const Pairs pairs = pair_up(groups.front(), groups[g], measure.value);
      const auto n = static_cast<std::int64_t>(pairs.a.size());
      std::vector<Cell> row{groups[g].label, std::string(measure.name),
                            std::string(measure.factor == 100 ? "points" : measure.unit), n};
      if (n == 0) {
        row.insert(row.end(), {Cell(), Cell(), Cell()});
      } else {
        const MeanInterval m = study::paired_over_seeds(pairs.a, pairs.b);
        row.emplace_back(measure.factor * m.mean);
        row.push_back(end_of(m, measure.factor, true));
        row.push_back(end_of(m, measure.factor, false));
      }
      row.emplace_back(interval_note(n));
      table.add_row(std::move(row));
    }
  table.add_note(
      "the mean over seeds of (group - first group), runs of equal seeds paired; low and high: "
      "Student's 95% interval");
  return table;
}

// At most about `points` means of neighbouring windows; a value that is not finite makes its mean
// so, and the curve has a gap there.
Series curve(const RunFiles& run, const std::string& label, double Window::*value,
             std::size_t points) {
  Series series{label, {}, {}};
  const std::size_t bucket = (run.windows.size() + points - 1) / std::max<std::size_t>(points, 1);
  for (std::size_t from = 0; from < run.windows.size(); from += std::max<std::size_t>(bucket, 1)) {
    const std::size_t to = std::min(from + bucket, run.windows.size());
    double x = 0;
    double y = 0;
    for (std::size_t i = from; i < to; ++i) {
      x += run.windows[i].step;
      y += run.windows[i].*value;
    }
    series.x.push_back(x / static_cast<double>(to - from));
    series.y.push_back(y / static_cast<double>(to - from));
  }
  return series;
}

void add_curves(study::Result& result, std::span<const RunFiles> runs,
                const std::vector<std::string>& labels) {
  // More lines than colours could not be told apart.
  const std::size_t shown = std::min<std::size_t>(runs.size(), 12);
  const std::string first =
      shown < runs.size() ? concat(" The first ", shown, " of ", runs.size(), " runs.") : "";
  Figure loss{"loss", "Loss of each window, a mean over neighbours in long runs." + first, "window",
              "cross-entropy, nats per sample"};
  Figure scale{"scale", "The loss scale that each window ran with." + first, "window",
               "loss scale"};
  Figure norm{"gradient-norm", "Norm of the unclipped gradient." + first, "window", "norm"};
  norm.log_y = true;
  scale.log_y = true;
  scale.provenance = kCounted;
  bool scaled = false;
  for (std::size_t i = 0; i < shown; ++i) {
    loss.series.push_back(curve(runs[i], labels[i], &Window::loss, 250));
    norm.series.push_back(curve(runs[i], labels[i], &Window::grad_norm, 250));
    const bool has = std::any_of(runs[i].windows.begin(), runs[i].windows.end(),
                                 [](const Window& w) { return w.scale != 1; });
    scaled = scaled || has;
    // Whole windows: a mean of two scales would be a scale that nothing ran with.
    if (has)
      scale.series.push_back(curve(runs[i], labels[i], &Window::scale, runs[i].windows.size()));
  }
  result.figures.push_back(std::move(loss));
  if (scaled) result.figures.push_back(std::move(scale));
  result.figures.push_back(std::move(norm));
}

void add_accuracies(study::Result& result, const std::vector<Group>& groups) {
  Figure dots{"accuracy",
              "Test accuracy: a dot a seed, and the mean with its 95% interval over seeds where "
              "there are several.",
              "group", "test accuracy (%)"};
  Series single{"one seed"};
  single.style = Series::Style::dots;
  Series means{"mean over seeds"};
  means.style = Series::Style::dots;
  Figure paired{"difference",
                concat("Test accuracy minus that of ", groups.front().label,
                       ", equal seeds paired: a dot a seed, the mean and its 95% "
                       "interval."),
                "group", "difference (points)"};
  Series paired_single = single;
  Series paired_means = means;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto at = static_cast<double>(g);
    dots.categories.push_back(groups[g].label);
    std::vector<double> values;
    for (const RunFiles* run : groups[g].runs) values.push_back(100 * run->test_accuracy);
    const auto add = [&](Series& all, Series& mean, double x, const std::vector<double>& v) {
      for (const double value : v) {
        all.x.push_back(x);
        all.y.push_back(value);
      }
      if (v.size() < 2) return;
      const MeanInterval m = study::mean_interval(v);
      mean.x.push_back(x);
      mean.y.push_back(m.mean);
      mean.low.push_back(m.interval ? m.interval->low : kNan);
      mean.high.push_back(m.interval ? m.interval->high : kNan);
    };
    add(single, means, at, values);
    if (g == 0) continue;
    const Pairs pairs = pair_up(groups.front(), groups[g], &RunFiles::test_accuracy);
    std::vector<double> difference;
    for (std::size_t i = 0; i < pairs.a.size(); ++i)
      difference.push_back(100 * (pairs.b[i] - pairs.a[i]));
    paired.categories.push_back(groups[g].label);
    add(paired_single, paired_means, at - 1, difference);
  }
  dots.series = {std::move(single)};
  if (!means.x.empty()) dots.series.push_back(std::move(means));
  paired.series = {std::move(paired_single)};
  if (!paired_means.x.empty()) paired.series.push_back(std::move(paired_means));
  result.figures.push_back(std::move(dots));
  if (groups.size() > 1) result.figures.push_back(std::move(paired));
}

}  // namespace

Comparison compare_runs(std::span<const RunFiles> runs) {
  ROUNDOFF_CHECK(!runs.empty(), "compare", "no runs to compare");
  const std::vector<std::string> labels = run_labels(runs);
  const Cuts cuts = cuts_of(runs);
  const std::vector<std::string> keys = differing_keys(runs, cuts);
  const std::vector<Group> groups = group_runs(runs, keys, cuts);
  Comparison comparison;
  comparison.warnings = find_warnings(runs, keys, groups);
  study::Result& r = comparison.result;
  r.title = concat("Comparison of ", runs.size(), runs.size() == 1 ? " run" : " runs");
  r.question = groups.size() == 1
                   ? std::string("What do runs that differ in their seed alone come to?")
                   : concat("How do runs with different ", joined(keys), " come out?");
  std::set<std::uint64_t> seeds;
  std::size_t fewest = runs.size();
  for (const Group& group : groups) fewest = std::min(fewest, group.runs.size());
  for (const RunFiles& run : runs) seeds.insert(run.seed);
  r.seeds.assign(seeds.begin(), seeds.end());
  r.method = {
      "Runs that differ in nothing but the seed are one group. Groups are compared with the first "
      "run's, runs of equal seeds paired, so that what the seed moves in both drops out. A seed "
      "counts once in a group: its first run. How a reproducible run cuts its windows moves no "
      "bit, and is no difference."};
  r.tables.push_back(runs_table(runs, labels));
  if (!keys.empty()) r.tables.push_back(settings_table(runs, labels, keys));
  r.tables.push_back(groups_table(groups));
  if (groups.size() > 1) r.tables.push_back(differences_table(groups));
  add_curves(r, runs, labels);
  add_accuracies(r, groups);
  for (const std::string& warning : comparison.warnings)
    r.does_not_show.push_back("WARNING: " + warning + ".");
  if (fewest == 1)
    r.does_not_show.emplace_back(
        "One seed ranks nothing: another seed may move the accuracy by as much as the setting "
        "does. "
        "An interval over seeds needs at least two.");
  r.does_not_show.emplace_back(
      "Accuracy in the course of training: a run keeps it only at its end.");
  r.does_not_show.emplace_back(
      "Speed on another machine: times are of the machine that the runs ran on.");
  return comparison;
}

}  // namespace roundoff::cli

#include "study/experiment.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>

#include "models/evaluate.h"

namespace roundoff::study {

namespace {

// Of data that is generated for a study: always the same.
constexpr std::uint64_t kDataSeed = 1;

ModelSettings with_data(ModelSettings settings, const Dataset& data) {
  settings.input = data.image;
  settings.classes = data.classes;
  return settings;
}

}  // namespace

void keep_first(Split& split, std::int64_t n) {
  if (split.size() <= n) return;
  const std::size_t bytes = split.images.bytes.size() / split.labels.size();
  split.labels.resize(static_cast<std::size_t>(n));
  split.images.bytes.resize(bytes * static_cast<std::size_t>(n));
  split.images.shape.set(0, n);
}

Dataset study_data(const Options& options, const GlyphSettings& settings) {
  if (options.data.empty()) return make_glyphs(kDataSeed, settings);
  Dataset data = load_dataset(options.data, kDataSeed);
  constexpr std::int64_t kTrained = 2000, kOthers = 1000;
  if (!options.quick || data.train.size() <= kTrained) return data;
  for (Split* split : {&data.train, &data.validation, &data.test})
    keep_first(*split, split == &data.train ? kTrained : kOthers);
  if (data.corrupted) keep_first(*data.corrupted, kOthers);
  data.name += concat(", the first ", kTrained, " training images");
  return data;
}

void check_seeds(std::span<const std::uint64_t> seeds) {
  for (auto at = seeds.begin(); at != seeds.end(); ++at)
    if (std::find(seeds.begin(), at, *at) != at)
      throw UsageError(
          concat("[study] --seeds has ", *at, " twice; a seed that is repeated is no second run"));
}

std::vector<std::uint64_t> study_seeds(const Options& options, std::int64_t own) {
  check_seeds(options.seeds);
  if (!options.seeds.empty()) return options.seeds;
  std::vector<std::uint64_t> seeds(static_cast<std::size_t>(own));
  std::iota(seeds.begin(), seeds.end(), std::uint64_t{1});
  return seeds;
}

std::uint64_t first_seed(const Options& options) { return study_seeds(options, 1).front(); }

void set_one_seed(const Options& options, Result& result) {
  const std::vector<std::uint64_t> seeds = study_seeds(options, 1);
  result.seeds = {seeds.front()};
  if (seeds.size() > 1)
    result.skipped.push_back(concat("every seed but ", seeds.front(), ": this study takes one"));
}

void need_samples(std::string_view study, const Dataset& data, std::int64_t samples) {
  ROUNDOFF_CHECK(data.train.size() >= samples, study, data.name, " has ", data.train.size(),
                 " training samples; the study needs ", samples);
}

Experiment::Experiment(const Setup& setup, const Dataset& data, std::unique_ptr<Model> own)
    : context(setup.device == Device::cpu ? nullptr : simt::open(setup.device)),
      model(own != nullptr ? std::move(own) : make_model(with_data(setup.model, data))),
      scaler(setup.scaler, setup.max_skips),
      data_(data),
      reader_(data.train, data.normalization) {
  apply_precision(context, setup.precision);
  context.rng.seed = setup.seed;
  ArenaSettings arena = arena_settings(setup.precision, setup.seed);
  if (setup.fp64) arena.master = DType::fp64;
  model->parameters().allocate(context.allocator, arena);
  if (!setup.fp64)
    optimizer = std::make_unique<Optimizer>(context, model->parameters(), setup.optimizer);
}

std::vector<MicroBatch> Experiment::window(std::span<const std::int64_t> indices,
                                           std::span<const std::int64_t> sizes,
                                           std::int64_t first) {
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  ROUNDOFF_CHECK(total == static_cast<std::int64_t>(indices.size()), "study", "micro-batches of ",
                 total, " samples for a window of ", indices.size());
  std::vector<MicroBatch> window;
  std::int64_t begin = 0;
  for (const std::int64_t n : sizes) {
    Shape shape = data_.train.images.shape;
    shape.set(0, n);
    MicroBatch& micro = window.emplace_back();
    micro.x = Tensor::empty(context.allocator, shape, DType::fp32);
    micro.labels = Tensor::empty(context.allocator, {n}, DType::i64);
    micro.sample0 = static_cast<std::uint64_t>(first + begin);
    micro.host_labels = reader_.gather(
        indices.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n)), micro.x,
        micro.labels, host_);
    micro.x = model_input(context, *model, micro.x);
    begin += n;
  }
  return window;
}

std::vector<MicroBatch> Experiment::window(std::span<const std::int64_t> indices,
                                           std::int64_t micro_batch, std::int64_t first) {
  std::vector<std::int64_t> sizes;
  auto rest = static_cast<std::int64_t>(indices.size());
  for (; rest > 0; rest -= sizes.back()) sizes.push_back(std::min(rest, micro_batch));
  return window(indices, sizes, first);
}

std::vector<double> Experiment::flat_gradient() const {
  std::vector<double> values;
  for (const ParameterEntry& entry : model->parameters().entries()) {
    const Leaf& leaf = *entry.tensor.leaf();
    const std::vector<double> part =
        leaf.has_grad ? leaf.grad.to_vector()
                      : std::vector<double>(static_cast<std::size_t>(entry.shape.numel()));
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

std::vector<double> Experiment::weights() const {
  std::vector<double> values;
  for (const ParameterEntry& entry : model->parameters().entries()) {
    const std::vector<double> part = entry.tensor.to_vector();
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

std::vector<double> Experiment::gradient(std::span<const MicroBatch> window, double scale) {
  ParameterArena& parameters = model->parameters();
  parameters.zero_grad();
  accumulate_window(context, *model, window, scale, {});
  parameters.discard_buffers();
  std::vector<double> values = flat_gradient();
  for (double& v : values) v /= scale;
  parameters.zero_grad();
  return values;
}

bool Experiment::finite(std::span<const MicroBatch> window, double scale) {
  ParameterArena& parameters = model->parameters();
  parameters.zero_grad();
  accumulate_window(context, *model, window, scale, {});
  parameters.discard_buffers();
  StepStatus status;
  set_scale(status, static_cast<float>(scale));
  optimizer->inspect({}, status);
  parameters.zero_grad();
  return status.found_inf == 0;
}

double Experiment::largest_scale(std::span<const MicroBatch> window, double near) {
  double scale = near;
  if (finite(window, scale)) {
    while (scale < 0x1p100 && finite(window, 2 * scale)) scale *= 2;
    return scale;
  }
  do {
    scale /= 2;
    if (scale < 0x1p-100) return 0;
  } while (!finite(window, scale));
  return scale;
}

StepResult Experiment::step(std::span<const MicroBatch> window, const StepSettings& settings) {
  return train_step(context, *model, *optimizer, scaler, window, settings);
}

void add_number(std::vector<Cell>& row, double value) {
  if (std::isnan(value))
    row.emplace_back();
  else
    row.emplace_back(value);
}

std::vector<std::int64_t> first_samples(std::int64_t n) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(n));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return indices;
}

double norm(std::span<const double> v) {
  return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
}

double relative_difference(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum) / norm(b);
}

double cosine(std::span<const double> a, std::span<const double> b) {
  const double lengths = norm(a) * norm(b);
  if (lengths == 0) return std::numeric_limits<double>::quiet_NaN();
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0) / lengths;
}

std::int64_t flushed(std::span<const double> a, std::span<const double> b) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < b.size(); ++i) count += b[i] != 0 && a[i] == 0;
  return count;
}

std::int64_t nonzeros(std::span<const double> v) {
  std::int64_t count = 0;
  for (const double x : v) count += x != 0;
  return count;
}

std::string digits(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.*g", digits, value);
  return text;
}

std::string power_of_two(double value) {
  int exponent = 0;
  if (std::isfinite(value) && std::frexp(value, &exponent) == 0.5)
    return concat("2^", exponent - 1);
  return digits(value);
}

}  // namespace roundoff::study

// roundoff round: what a number becomes in a format.
#include <CLI/CLI.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "cli/command.h"
#include "cli/config.h"
#include "cli/console.h"
#include "cli/number.h"
#include "kernels/base/format.h"

namespace roundoff::cli {

namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> values;
  std::string to = "fp16";
  std::string mode = "rne";
  std::string scale;
  std::uint64_t seed = 1;
  bool bits = false;
};

// "0x3C00", as many digits as the width takes.
std::string hexadecimal(std::uint64_t pattern, int width) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out = "0x";
  for (int i = (width + 3) / 4 - 1; i >= 0; --i) out += kDigits[(pattern >> (4 * i)) & 15];
  return out;
}

// "0 01111 0000000000": sign, exponent, fraction.
std::string binary(std::uint64_t pattern, const Format& f) {
  std::string out;
  for (int i = f.width() - 1; i >= 0; --i) {
    out += ((pattern >> i) & 1) != 0 ? '1' : '0';
    if (i == f.width() - 1 || i == f.fraction_bits()) out += ' ';
  }
  return out;
}

// The smallest k >= 0 for which x 2^k rounds to a normal number; none where no k does.
std::optional<std::int64_t> log2_scale_to_normal(const ExactNumber& x, const Format& f) {
  if (x.is_nan() || x.is_infinite() || x.is_zero()) return std::nullopt;
  const auto normal = [&](int k) {
    const Rounded r = x.times_exp2(k).round(f);
    return r.value_class == ValueClass::normal && !r.overflow;
  };
  // A number just below a power of two rounds up to it: one step less may do.
  const int k = std::max(0, f.emin - x.exponent());
  if (k > 0 && normal(k - 1)) return k - 1;
  if (normal(k)) return k;
  return std::nullopt;
}

std::string remarks(const Rounded& r) {
  if (r.invalid) return "NaN has no pattern here";
  if (r.overflow) return "overflow";
  return r.inexact ? "inexact" : "exact";
}

int run(const Options& o, Console& console) {
  const Format f = typed([&] { return parse_format(o.to); });
  const RoundingMode mode = typed([&] { return parse_rounding_mode(o.mode); });
  std::optional<ExactNumber> scale;
  if (!o.scale.empty()) {
    scale = ExactNumber::parse(o.scale);
    const double s = scale->nearest_double();
    if (scale->is_nan() || scale->negative() || s == 0 || std::isinf(s))
      throw UsageError(concat("[round] --scale ", o.scale, ": a finite number above 0 expected"));
  }
  std::vector<ExactNumber> numbers;
  for (const std::string& text : o.values) numbers.push_back(ExactNumber::parse(text));

  constexpr auto kModelled = Provenance::modelled;
  std::vector<Column> columns = {{"value"}, {"rounded", kModelled, 0},      {"bits", kModelled},
                                 {"class"}, {"error", kModelled, 3, "ulp"}, {"remark"}};
  if (o.bits) columns.push_back({"sign_exponent_fraction", kModelled});
  if (scale) {
    columns.push_back({"scaled", kModelled, 0});
    columns.push_back({"scaled_class"});
    columns.push_back({"back", kModelled, 0});
    columns.push_back({"back_error", kModelled, 3, "relative"});
    columns.push_back({"normal_from_log2_scale", kModelled});
  }
  Table table("round to " + format_name(f) + ", " + o.mode, columns);

  std::mt19937_64 random(o.seed);  // one draw a rounding, used by sr alone
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const ExactNumber& x = numbers[i];
    const Rounded r = x.round(f, mode, random());
    std::vector<Cell> row = {o.values[i], r.value};
    const bool pattern = f.has_layout();
    const std::uint64_t bits = pattern ? encode(r.value, f) : 0;
    row.emplace_back(pattern ? Cell(hexadecimal(bits, f.width())) : Cell());
    row.emplace_back(std::string(name(r.value_class)));
    row.emplace_back(std::isnan(r.error_ulp) ? Cell() : Cell(r.error_ulp));
    row.emplace_back(remarks(r));
    if (o.bits) row.emplace_back(pattern ? Cell(binary(bits, f)) : Cell());
    if (scale) {
      const Rounded scaled = x.times(*scale).round(f, mode, random());
      const double back = scaled.value / scale->nearest_double();
      const double exact = x.nearest_double();
      row.emplace_back(scaled.value);
      row.emplace_back(std::string(name(scaled.value_class)) +
                       (scaled.overflow ? ", overflow" : ""));
      row.emplace_back(back);
      const double error = (back - exact) / std::fabs(exact);
      row.emplace_back(std::isnan(error) ? Cell() : Cell(error));
      const auto k = log2_scale_to_normal(x, f);
      row.emplace_back(k ? Cell(*k) : Cell());
    }
    table.add_row(std::move(row));
  }
  if (scale)
    table.add_note(
        "normal_from_log2_scale: 2^k is the smallest power of two, 1 or more, that makes the value "
        "normal");
  if (!f.has_layout()) table.add_note(format_name(f) + " fills no bit layout");
  console.emit(table, o.common);
  return kDone;
}

}  // namespace

Command add_round(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("round", "Round numbers to a format and show what is lost");
  auto o = std::make_shared<Options>();
  command
      ->add_option("VALUE", o->values,
                   "Decimal, hexadecimal (0x1.8p-3), inf or nan; rounded once from what is written")
      ->required()
      ->transform(restore_minus);
  std::string formats;
  for (const FormatRow& row : format_rows()) formats += std::string(row.name) + ", ";
  command
      ->add_option(
          "--to", o->to,
          "Format: " + formats + "or p=P,emin=E,emax=E[,infinities=no][,nan=no][,saturates=yes]")
      ->capture_default_str();
  command
      ->add_option("--mode", o->mode,
                   "Rounding: rne (nearest, ties to even), rz, rd, ru, sr (stochastic)")
      ->capture_default_str();
  command->add_option("--scale", o->scale, "Also scale by this number, round, and scale back");
  command->add_option("--seed", o->seed, "Of the random integers that sr draws")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--bits", o->bits, "Also the pattern in binary: sign, exponent, fraction");
  add_common_options(*command, o->common, true);
  add_examples(*command, {"roundoff round 0.1 -65520 1e-8 --to fp16 --bits",
                          "roundoff round 3e-8 --to fp16 --scale 65536",
                          "roundoff round 0.3 --to p=5,emin=-6,emax=7 --mode ru"});
  return {command, [o](Console& console) {
            console.set_quiet(o->common.quiet);
            return run(*o, console);
          }};
}

}  // namespace roundoff::cli

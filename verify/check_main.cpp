#include "verify/check_main.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>

#include "kernels/simt/emulator/profiler/profile.h"
#include "verify/guarded_context.h"

namespace roundoff {

namespace {

constexpr int kDone = 0, kNotHeld = 1, kUsage = 2, kFailed = 3, kAbsent = 77;

struct Settings {
  std::string command;
  std::vector<std::string> names;
  std::optional<Device> device;
  std::vector<DType> dtypes;
  bool full = false;
  bool sanitize = false;
  std::uint64_t seed = 1;
  std::uint64_t schedules = 4;
  std::optional<std::uint64_t> replay;
  std::string json;
};

constexpr const char* kUsageText =
    "check   [KERNEL...] [--device sim|cuda|cpu] [--dtype fp32,fp16,bf16,fp64]\n"
    "        [--cases quick|full] [--seed N] [--schedules N] [--sanitize] [--replay K]\n"
    "        [--json FILE|-]\n"
    "replay  K [KERNEL...]   one schedule of the emulator, under its sanitizer\n"
    "profile [KERNEL...]     memory requests, line by line, as the emulator counts them\n"
    "bench   [KERNEL...]     on cuda: milliseconds and bytes a second\n"
    "list                    the kernels and their cases\n";

[[noreturn]] void usage(const std::string& what) { throw UsageError(concat("[check] ", what)); }

std::uint64_t number(const std::string& flag, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    usage(concat(flag, " is '", text, "'; an integer that is not negative expected"));
  return value;
}

const char* name_of(Device device) {
  constexpr const char* kNames[] = {"cpu", "sim", "cuda"};
  return kNames[static_cast<int>(device)];
}

Device device_of(const std::string& text) {
  for (const Device d : {Device::cpu, Device::sim, Device::cuda})
    if (text == name_of(d)) return d;
  usage(concat("--device is '", text, "'; sim, cuda or cpu expected"));
}

std::vector<DType> dtypes_of(std::string_view list) {
  std::vector<DType> dtypes;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string text(list.substr(0, comma));
    const auto before = dtypes.size();
    for (const DType d : {DType::fp64, DType::fp32, DType::fp16, DType::bf16})
      if (text == name(d)) dtypes.push_back(d);
    if (dtypes.size() == before)
      usage(concat("--dtype is '", text, "'; fp64, fp32, fp16 or bf16 expected"));
    if (comma == std::string_view::npos) return dtypes;
    list.remove_prefix(comma + 1);
  }
}

Settings parse(const std::vector<std::string>& arguments) {
  Settings s;
  if (arguments.empty()) usage("no command; check, replay, profile, bench or list expected");
  s.command = arguments[0];
  constexpr std::string_view kCommands[] = {"check", "replay", "profile", "bench", "list"};
  if (std::find(std::begin(kCommands), std::end(kCommands), s.command) == std::end(kCommands))
    usage(concat("unknown command '", s.command,
                 "'; check, replay, profile, bench or list expected"));
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) usage(concat(a, " takes a value"));
      return arguments[++i];
    };
    if (a == "--device")
      s.device = device_of(value());
    else if (a == "--dtype")
      s.dtypes = dtypes_of(value());
    else if (a == "--seed")
      s.seed = number(a, value());
    else if (a == "--schedules")
      s.schedules = number(a, value());
    else if (a == "--replay")
      s.replay = number(a, value());
    else if (a == "--json")
      s.json = value();
    else if (a == "--sanitize")
      s.sanitize = true;
    else if (a == "--cases") {
      const std::string& set = value();
      if (set != "quick" && set != "full")
        usage(concat("--cases is '", set, "'; quick or full expected"));
      s.full = set == "full";
    } else if (a.rfind("--", 0) == 0) {
      usage(concat("unknown option ", a));
    } else if (s.command == "replay" && !s.replay) {
      s.replay = number("replay", a);
    } else {
      s.names.push_back(a);
    }
  }
  if (s.schedules == 0) usage("--schedules is 0; at least 1 expected");
  if (s.command == "replay") {
    if (!s.replay) usage("replay takes the number of a schedule");
    s.command = "check";
    s.sanitize = true;
  }
  return s;
}

std::vector<const OwnKernel*> chosen(const std::vector<OwnKernel>& kernels, const Settings& s) {
  std::vector<const OwnKernel*> some;
  std::string known;
  for (const OwnKernel& k : kernels) {
    validate(k);
    known += concat(known.empty() ? "" : ", ", k.name);
    if (s.names.empty() || std::find(s.names.begin(), s.names.end(), k.name) != s.names.end())
      some.push_back(&k);
  }
  for (const std::string& wanted : s.names)
    if (std::none_of(kernels.begin(), kernels.end(),
                     [&](const OwnKernel& k) { return k.name == wanted; }))
      usage(concat("unknown kernel '", wanted, "'; ", known, " expected"));
  return some;
}

// sim where the kernel was built for it.
Device device_for(const Settings& s, const OwnKernel& k) {
  if (s.device) return *s.device;
  return k.forward.sim || k.forward.checked ? Device::sim
         : k.forward.cuda                   ? Device::cuda
                                            : Device::cpu;
}

// Those of the kernel that were asked for.
std::vector<DType> dtypes_for(const Settings& s, const OwnKernel& k) {
  if (s.dtypes.empty()) return k.dtypes;
  std::vector<DType> both;
  for (const DType d : s.dtypes)
    if (std::find(k.dtypes.begin(), k.dtypes.end(), d) != k.dtypes.end()) both.push_back(d);
  return both;
}
// Says which kernels --dtype leaves out; throws UsageError where it leaves out all.
void check_dtypes(const Settings& s, const std::vector<const OwnKernel*>& kernels,
                  std::ostream& err) {
  bool some = false;
  for (const OwnKernel* k : kernels) {
    if (!dtypes_for(s, *k).empty()) {
      some = true;
      continue;
    }
    err << "note: " << k->name << " does not take the types of --dtype and is left out\n";
  }
  if (!some) throw UsageError("[check] no kernel takes the types of --dtype");
}

// Columns as wide as they have to be.
void print(std::ostream& out, const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> width;
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (width.size() <= i) width.push_back(0);
      width[i] = std::max(width[i], line[i].size());
    }
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
      text += line[i];
      if (i + 1 < line.size()) text.append(width[i] - line[i].size() + 2, ' ');
    }
    out << text << '\n';
  }
}

std::string short_number(double value) {
  std::ostringstream text;
  text << std::setprecision(2) << value;
  return std::move(text).str();
}

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) json += c;
  }
  return json + '"';
}

int check(const Settings& s, const std::vector<const OwnKernel*>& kernels, std::ostream& out,
          std::ostream& err) {
  std::vector<std::vector<std::string>> lines{{"kernel", "dtype", "case", "gradient", "error/bound",
                                               "gradient", "rung", "schedules", "verdict"}};
  std::string json;
  bool holds = true;
  for (const OwnKernel* k : kernels) {
    const Device device = device_for(s, *k);
    const CallRunner runner =
        own_runner(*k, device, {.accumulator = k->accumulator, .sanitize = s.sanitize});
    CheckOptions options = check_options(*k);
    options.seed = s.seed;
    options.schedules.clear();
    const std::uint64_t n = device == Device::sim && !s.replay ? s.schedules : 1;
    for (std::uint64_t i = 0; i < n; ++i) options.schedules.push_back(s.replay.value_or(i));
    for (const Case& c : cases_of(*k, s.full))
      for (const DType dtype : dtypes_for(s, *k)) {
        const CheckReport r = check_case(c, dtype, runner, options);
        holds = holds && r.holds();
        lines.push_back({k->name, std::string(name(dtype)), c.text(),
                         r.gradients.empty() ? "-" : r.gradients, short_number(r.ratio),
                         r.gradients.empty() ? "-" : short_number(r.gradient_ratio), r.rung_text(),
                         std::to_string(r.schedules), r.holds() ? "holds" : "BROKEN"});
        json +=
            concat(json.empty() ? "" : ",\n  ", "{\"kernel\": ", quoted(k->name),
                   ", \"dtype\": ", quoted(std::string(name(dtype))),
                   ", \"case\": ", quoted(c.text()), ", \"holds\": ", r.holds() ? "true" : "false",
                   ", \"runs\": ", r.runs, ", \"failures\": [");
        std::string failures;
        for (const CheckFailure& f : r.failures) {
          failures += concat(failures.empty() ? "" : ", ", quoted(f.text));
          if (&f != &r.failures.front()) continue;
          err << "error: [" << k->name << "] " << name(dtype) << ", " << c.text() << ", "
              << name(f.fill) << " operands, schedule " << f.schedule << ": " << f.text;
          if (r.failures.size() > 1) err << " (and " << r.failures.size() - 1 << " more)";
          err << '\n';
          if (device == Device::sim)
            err << "  again with: replay " << f.schedule << ' ' << k->name << " --dtype "
                << name(dtype) << " --seed " << s.seed << '\n';
        }
        json += concat(failures, "]}");
      }
  }
  if (s.json != "-") print(out, lines);
  if (!s.json.empty()) {
    const std::string text = concat("[", json, "]\n");
    if (s.json == "-") {
      out << text;
    } else {
      std::ofstream file(s.json);
      file << text;
      file.close();
      ROUNDOFF_CHECK(file.good(), "check", "--json ", s.json, " cannot be written");
    }
  }
  return holds ? kDone : kNotHeld;
}

// One call of a case with random operands, forward and, where there is one, backward.
CheckReport once(const Case& c, DType dtype, const OwnKernel& k, const CallRunner& runner,
                 std::uint64_t seed) {
  CheckOptions options = check_options(k);
  options.seed = seed;
  return check_fill(c, dtype, Fill::normal, k.gradient_form, runner, options);
}

int profile(const Settings& s, const std::vector<const OwnKernel*>& kernels, std::ostream& out) {
  if (s.device && *s.device != Device::sim) usage("profile counts on sim");
  bool holds = true;
  for (const OwnKernel* k : kernels) {
    const detail::OpenedDevice opened = [&] {
      RunnerOptions options{.accumulator = k->accumulator, .profile = true};
      return detail::open_device(Device::sim, options);
    }();
    const CallRunner runner =
        own_runner(*k, opened, {.accumulator = k->accumulator, .profile = true});
    for (const Case& c : cases_of(*k, s.full))
      for (const DType dtype : dtypes_for(s, *k)) {
        simt::Emulator& device = simt::emulator(*opened.runtime);
        device.reset_profile();
        const CheckReport r = once(c, dtype, *k, runner, s.seed);
        holds = holds && r.holds();
        out << k->name << ", " << name(dtype) << ", " << c.text()
            << (r.holds() ? "" : "  (its result is WRONG)") << "; counted on sim\n";
        device.profile().print(out);
        out << "least traffic of the forward pass: " << c.min_bytes(dtype) << " bytes\n\n";
      }
  }
  return holds ? kDone : kNotHeld;
}

int bench(const Settings& s, const std::vector<const OwnKernel*>& kernels, std::ostream& out) {
  const bool timed = s.device.value_or(Device::cuda) == Device::cuda;
  const Device device =
      s.device.value_or(simt::refusal(Device::cuda).empty() ? Device::cuda : Device::sim);
  std::vector<std::vector<std::string>> lines;
  if (device == Device::cuda)
    lines.push_back({"kernel", "dtype", "case", "ms [measured]", "spread", "GB/s [measured]",
                     "GFLOP/s [measured]"});
  else
    lines.push_back({"kernel", "dtype", "case", "launches [counted]", "least bytes [modelled]",
                     "flops [modelled]"});
  bool holds = true;
  for (const OwnKernel* k : kernels) {
    const RunnerOptions options{.accumulator = k->accumulator};
    const detail::OpenedDevice opened = detail::open_device(device, options);
    std::vector<double> times;
    const CallRunner runner = own_runner(*k, opened, options);
    const CallRunner timing = own_timing_runner(*k, opened, options, times);
    for (const Case& c : cases_of(*k, s.full))
      for (const DType dtype : dtypes_for(s, *k)) {
        // Verified first.
        if (!once(c, dtype, *k, runner, s.seed).holds()) {
          holds = false;
          lines.push_back({k->name, std::string(name(dtype)), c.text(), "its result is wrong"});
          continue;
        }
        std::vector<std::string> line{k->name, std::string(name(dtype)), c.text()};
        if (device == Device::cuda) {
          times.clear();
          (void)once(c, dtype, *k, timing, s.seed);
          std::sort(times.begin(), times.end());
          const double median = times[times.size() / 2];
          line.insert(line.end(), {concat(median), concat(times.front(), " to ", times.back()),
                                   short_number(c.min_bytes(dtype) / median * 1e-6),
                                   short_number(c.flops / median * 1e-6)});
        } else {
          const std::int64_t before =
              opened.runtime == nullptr ? 0 : opened.runtime->counters().launches;
          (void)once(c, dtype, *k, runner, s.seed);
          line.push_back(opened.runtime == nullptr
                             ? std::string("-")
                             : concat(opened.runtime->counters().launches - before));
          line.insert(line.end(), {concat(c.min_bytes(dtype)), concat(c.flops)});
        }
        lines.push_back(std::move(line));
      }
  }
  print(out, lines);
  if (device != Device::cuda && timed)
    out << "no times: " << simt::refusal(Device::cuda) << "; a simulated device has none\n";
  return holds ? kDone : kNotHeld;
}

int list(const std::vector<const OwnKernel*>& kernels, const Settings& s, std::ostream& out) {
  std::vector<std::vector<std::string>> lines{{"kernel", "should compute", "devices", "case"}};
  for (const OwnKernel* k : kernels) {
    std::string devices;
    const auto add = [&](const auto& f, const char* device) {
      if (f) devices += concat(devices.empty() ? "" : ", ", device);
    };
    add(k->forward.cpu, "cpu");
    add(k->forward.sim, "sim");
    add(k->forward.checked, "sim with the sanitizer");
    add(k->forward.cuda, "cuda");
    for (const Case& c : cases_of(*k, s.full))
      lines.push_back(
          {k->name, k->oracle.empty() ? "its own reference" : k->oracle, devices, c.text()});
  }
  print(out, lines);
  return kDone;
}

}  // namespace

int check_main(const std::vector<std::string>& arguments, const std::vector<OwnKernel>& kernels,
               std::ostream& out, std::ostream& err) {
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    out << kUsageText;
    return kDone;
  }
  try {
    const Settings s = parse(arguments);
    const auto some = chosen(kernels, s);
    if (s.command == "list") return list(some, s, out);
    check_dtypes(s, some, err);
    if (s.command == "profile") return profile(s, some, out);
    if (s.command == "bench") return bench(s, some, out);
    return check(s, some, out, err);
  } catch (const UsageError& e) {
    err << "error: " << e.what() << '\n' << kUsageText;
    return kUsage;
  } catch (const simt::DeviceAbsent& e) {
    err << "skipped: " << e.what() << '\n';
    return kAbsent;
  } catch (const std::exception& e) {
    err << "error: " << e.what() << '\n';
    return kFailed;
  }
}

int check_main(int argc, const char* const* argv, const std::vector<OwnKernel>& kernels) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  return check_main(arguments, kernels, std::cout, std::cerr);
}

}  // namespace roundoff

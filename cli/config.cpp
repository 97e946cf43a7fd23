#include "cli/config.h"

#include <toml++/toml.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "bench/table.h"
#include "cli/toml_text.h"
#include "engine/io/file.h"
#include "kernels/base/check.h"

namespace roundoff::cli {

namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{1} << 20;
// What a run that is resumed may be told anew; everything else is its own. Whether its windows may
// be cut otherwise, the checkpoint says.
constexpr std::string_view kMayChange[] = {
    "resume",      "steps",      "epochs", "early-stop", "max-skips", "checkpoint-every",
    "micro-batch", "accumulate", "quiet",  "json",       "csv",       "verbose"};
constexpr char kProtectedMinus = '\x01';

enum class Kind { flag, integer, natural, number, text };

// What a value of the option is, from the type that CLI11 derived from its variable.
Kind kind_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return Kind::flag;
  const std::string type = option.get_type_name();
  const auto is = [&](std::string_view prefix) {
    return type.compare(0, prefix.size(), prefix) == 0 &&
           (type.size() == prefix.size() || type[prefix.size()] == ':' ||
            type[prefix.size()] == ' ');
  };
  if (is("INT")) return Kind::integer;
  if (is("UINT")) return Kind::natural;
  if (is("FLOAT")) return Kind::number;
  return Kind::text;
}

std::string_view expected(Kind kind) {
  switch (kind) {
    case Kind::flag:
      return "true or false";
    case Kind::integer:
      return "an integer";
    case Kind::natural:
      return "an integer that is not negative";
    case Kind::number:
      return "a number";
    case Kind::text:
      return "text or a number";
  }
  return "?";
}

// CLI11 drops the empty items of a list, and takes what comes next where nothing is left.
void check_list(const CLI::App& command, const CLI::Option& option, const std::string& text) {
  const char comma = option.get_delimiter();
  if (comma == '\0' || text.empty()) return;
  if (text.front() == comma || text.back() == comma ||
      text.find(std::string(2, comma)) != std::string::npos)
    throw UsageError(concat("[", command.get_name(), "] --", option.get_lnames()[0], " is '", text,
                            "'; values with single commas between them expected"));
}

// The name under which a file holds the command's positional arguments; empty where it does not.
std::string positional_setting(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options())
    if (option->get_positional() && !option->get_lnames().empty()) return option->get_lnames()[0];
  return {};
}

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a floating-point number";
    case toml::node_type::boolean:
      return "a truth value";
    default:
      return "a date or time";
  }
}

bool takes_list(const CLI::Option& option) { return option.get_items_expected_max() > 1; }

// Options that belong to the command line alone.
bool is_setting(const CLI::Option& option) {
  const auto& names = option.get_lnames();
  return !names.empty() && names[0] != "help" && names[0] != "config" && names[0] != "resume";
}

const CLI::Option* find_long(const CLI::App& command, const std::string& name) {
  for (const CLI::Option* option : command.get_options())
    if (option->check_lname(name)) return option;
  return nullptr;
}

struct Where {
  std::string_view origin;
  std::string key;
  const toml::node& node;
};

template <class... Parts>
[[noreturn]] void refuse(const Where& at, const Parts&... parts) {
  throw UsageError(concat("[config] ", at.origin, " line ", at.node.source().begin.line, ": key '",
                          at.key, "' ", parts...));
}

std::string scalar(const Where& at, const toml::node& node, Kind kind) {
  if (const auto* v = node.as_integer()) {
    if (kind == Kind::natural && v->get() < 0)
      refuse(at, "is negative; ", expected(kind), " expected");
    if (kind != Kind::flag) return std::to_string(v->get());
  }
  if (const auto* v = node.as_floating_point(); v != nullptr)
    if (kind == Kind::number || kind == Kind::text) return shortest(v->get());
  if (const auto* v = node.as_string(); v != nullptr && kind == Kind::text) {
    const std::string& text = v->get();
    if (text.find('\0') != std::string::npos) refuse(at, "holds a zero byte");
    return text;
  }
  refuse(at, "holds ", type_name(node), "; ", expected(kind), " expected");
}

void append(const Where& at, const CLI::Option& option, std::vector<std::string>& arguments) {
  const Kind kind = kind_of(option);
  const std::string flag = "--" + at.key;
  if (kind == Kind::flag) {
    const auto* v = at.node.as_boolean();
    if (v == nullptr) refuse(at, "holds ", type_name(at.node), "; ", expected(kind), " expected");
    if (v->get()) arguments.push_back(flag);
    return;
  }
  const auto push = [&](const toml::node& node) {
    arguments.push_back(flag);
    arguments.push_back(scalar(at, node, kind));
  };
  if (const auto* list = at.node.as_array()) {
    if (!takes_list(option)) refuse(at, "holds an array; ", expected(kind), " expected");
    if (list->empty() && !option.get_default_str().empty())
      refuse(at, "holds an empty array; one value or more expected");
    for (const toml::node& item : *list) push(item);
    return;
  }
  push(at.node);
}

std::string toml_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      constexpr char kHex[] = "0123456789ABCDEF";
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

// TOML wants a digit on both sides of a point and no bare "1e5" surprises: numbers are written from
// their value.
std::string toml_scalar(const std::string& text, Kind kind) {
  if (kind == Kind::integer || kind == Kind::natural) return text;
  if (kind == Kind::number) {
    std::string number = shortest(std::strtod(text.c_str(), nullptr));
    if (number.find_first_of(".einf") == std::string::npos) number += ".0";
    return number;
  }
  return toml_quoted(text);
}

toml::table parse(std::string_view text, std::string_view origin) {
  try {
    return toml::parse(toml_for_parser(text, origin), origin);
  } catch (const toml::parse_error& error) {
    fail("config", origin, " line ", error.source().begin.line, ": ", error.description());
  }
}

std::string plain_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return std::to_string(whole->get());
  if (const auto* real = node.as_floating_point()) return shortest(real->get());
  std::string out;
  if (const auto* list = node.as_array())
    for (const toml::node& item : *list) out += (out.empty() ? "" : ",") + plain_text(item);
  return out;
}

}  // namespace

std::map<std::string, std::string> read_settings(std::string_view text, std::string_view origin) {
  std::map<std::string, std::string> settings;
  for (const auto& [key, node] : parse(text, origin))
    settings[std::string(key.str())] = plain_text(node);
  return settings;
}

std::vector<std::string> config_arguments(const CLI::App& command, std::string_view text,
                                          std::string_view origin,
                                          const std::vector<std::string>& given) {
  const toml::table root = parse(text, origin);
  // In the order of the file, so that the first wrong line is the one reported.
  std::vector<std::pair<std::string, const toml::node*>> entries;
  for (const auto& [key, node] : root) entries.emplace_back(std::string(key.str()), &node);
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const auto& p = a.second->source().begin;
    const auto& q = b.second->source().begin;
    return std::tie(p.line, p.column, a.first) < std::tie(q.line, q.column, b.first);
  });
  std::vector<std::string> arguments;
  for (const auto& [key, node] : entries) {
    const Where at{origin, key, *node};
    const CLI::Option* option = find_long(command, key);
    if (option == nullptr) {
      std::string dashed = key;
      std::replace(dashed.begin(), dashed.end(), '_', '-');
      if (find_long(command, dashed) != nullptr)
        refuse(at, "is unknown; '", dashed, "' is the flag's name");
      refuse(at, "is unknown to ", command.get_name());
    }
    if (!is_setting(*option)) refuse(at, "belongs to the command line alone");
    std::vector<std::string> added;
    append(at, *option, added);  // also checks what a flag then overrides
    if (std::find(given.begin(), given.end(), key) == given.end())
      arguments.insert(arguments.end(), added.begin(), added.end());
  }
  return arguments;
}

std::vector<std::string> prepare_arguments(const CLI::App& command,
                                           const std::vector<std::string>& arguments) {
  std::vector<std::string> given;
  std::string config;
  std::string resume;  // a run's folder, whose settings are those of config.toml in it
  std::vector<std::string> out;
  std::size_t end = arguments.size();  // of what can be flags
  const CLI::Option* open = nullptr;   // the option whose value is due
  bool positional = false;             // one was given
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    if (a == "--") {
      end = i;
      out.insert(out.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    if (open != nullptr) {
      // CLI11 takes an empty number for 0.
      const std::string type = open->get_type_name();
      if (a.empty() && (kind_of(*open) != Kind::text || type == "FILE" || type == "DIR"))
        throw UsageError(
            concat("[", command.get_name(), "] --", open->get_lnames()[0], " has no value"));
      check_list(command, *open, a);
      if (open->check_lname("config")) config = a;
      if (open->check_lname("resume")) resume = a;
      open = nullptr;
      out.push_back(a);
      continue;
    }
    if (a.size() > 2 && a.compare(0, 2, "--") == 0) {
      const std::size_t equals = a.find('=');
      const std::string name = a.substr(2, equals == std::string::npos ? equals : equals - 2);
      if (equals + 1 == a.size())
        throw UsageError(concat("[", command.get_name(), "] ", a, " has no value"));
      given.push_back(name);
      const CLI::Option* option = find_long(command, name);
      if (option != nullptr && option->get_items_expected_max() > 0) {
        if (equals == std::string::npos) {
          open = option;
        } else {
          check_list(command, *option, a.substr(equals + 1));
          if (name == "config") config = a.substr(equals + 1);
          if (name == "resume") resume = a.substr(equals + 1);
        }
      }
      out.push_back(a);
      continue;
    }
    // CLI11 sees a flag in every dash that no digit follows.
    static constexpr std::string_view kNumbers[] = {"-inf", "-infinity", "-nan"};
    std::string lower = a;
    for (char& c : lower)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool number =
        std::find(std::begin(kNumbers), std::end(kNumbers), lower) != std::end(kNumbers) ||
        (a.size() > 2 && a[0] == '-' && a[1] == '.');
    out.push_back(number ? kProtectedMinus + a.substr(1) : a);
    if (a.empty() || a[0] != '-') positional = true;
  }
  if (const std::string name = positional_setting(command);
      !name.empty() && (positional || end + 1 < arguments.size()))
    given.push_back(name);
  if (!resume.empty()) {
    for (const std::string& flag : given)
      if (std::find(std::begin(kMayChange), std::end(kMayChange), flag) == std::end(kMayChange))
        throw UsageError(concat("[", command.get_name(), "] --", flag,
                                " does not go with --resume: the run has its own settings"));
    config = resume + "/config.toml";
  }
  if (config.empty()) return out;
  const Bytes bytes = read_file(config, kMaxConfigBytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::vector<std::string> added = config_arguments(command, text, config, given);
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(end), added.begin(), added.end());
  return out;
}

std::string restore_minus(std::string value) {
  if (!value.empty() && value[0] == kProtectedMinus) value[0] = '-';
  return value;
}

std::string resolved_config(
    const CLI::App& command, const std::vector<std::string_view>& without,
    const std::vector<std::pair<std::string_view, std::vector<std::string>>>& replaced) {
  std::string out =
      "# roundoff " + command.get_name() + " --config FILE runs with these settings\n";
  for (const CLI::Option* option : command.get_options()) {
    if (!is_setting(*option)) continue;
    const std::string& key = option->get_lnames()[0];
    if (std::find(without.begin(), without.end(), key) != without.end()) continue;
    const Kind kind = kind_of(*option);
    if (kind == Kind::flag) {
      out += key + " = " + (option->count() > 0 && option->as<bool>() ? "true\n" : "false\n");
      continue;
    }
    std::vector<std::string> values = option->results();
    if (values.empty() && !option->get_default_str().empty())
      values.push_back(option->get_default_str());
    for (const auto& [name, other] : replaced)
      if (name == key) values = other;
    if (values.empty()) continue;  // not given, and without a default
    if (!takes_list(*option)) {
      out += key + " = " + toml_scalar(values.back(), kind) + "\n";
      continue;
    }
    out += key + " = [";
    for (std::size_t i = 0; i < values.size(); ++i)
      out += (i == 0 ? "" : ", ") + toml_scalar(values[i], kind);
    out += "]\n";
  }
  return out;
}

std::string absolute_data(const std::string& data) {
  const std::size_t colon = data.find(':');
  if (colon == std::string::npos) return data;
  return data.substr(0, colon + 1) +
         std::filesystem::absolute(data.substr(colon + 1)).lexically_normal().string();
}

}  // namespace roundoff::cli

// Settings in TOML: everything that a flag says, under the flag's long name.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace roundoff::cli {

// Reads TOML and turns it into arguments of `command`, leaving out the keys named in `given` (flags
// win). A flag is a truth value, a list option an array or one value; numbers are given as numbers.
// `origin` names the source in errors. Throws UsageError, naming the key, for an unknown key, a
// wrong type, or a key that has no place in a file; Error for text that is not TOML.
std::vector<std::string> config_arguments(const CLI::App& command, std::string_view toml,
                                          std::string_view origin,
                                          const std::vector<std::string>& given);

// The settings of a run's config.toml as text, by key; a list's values are joined by commas. Throws
// Error, naming `origin` and the line, for text that is not TOML.
std::map<std::string, std::string> read_settings(std::string_view toml, std::string_view origin);

// The arguments that `command` should parse in place of `arguments` (without the program's and the
// subcommand's name): those of the file behind --config, or of a run that --resume continues,
// added, and negative numbers that CLI11 takes for flags (-inf, -nan, -.5) protected until
// restore_minus(). Positional arguments win over the file as flags do. Throws UsageError for
// "--flag=" and for a list with commas around nothing.
std::vector<std::string> prepare_arguments(const CLI::App& command,
                                           const std::vector<std::string>& arguments);
// Undoes the protection of one value; give it to every option that takes numbers by position, as
// option->transform(restore_minus).
std::string restore_minus(std::string value);

// What `command` ran with, defaults included, as a file that --config reads back to the same run.
// Positional arguments without a flag's name are not settings and are left out, and so are the
// flags named in `without`; `replaced` gives options other values, none leaves one out. Call it
// after parsing.
std::string resolved_config(
    const CLI::App& command, const std::vector<std::string_view>& without = {},
    const std::vector<std::pair<std::string_view, std::vector<std::string>>>& replaced = {});

// --data with its folder as it is found from anywhere: settings outlive the folder that they were
// given in.
std::string absolute_data(const std::string& data);

}  // namespace roundoff::cli

// Arrays that a person names on the command line, and what an operation gets of them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/context.h"
#include "engine/data/array.h"

namespace roundoff::cli {

struct FileArray {
  std::string name;
  std::filesystem::path file;
  HostArray array;
};

// Reads what --in, --grad or --compare name: "x=x.npy"; "x:bf16=x.npy" for bf16 bits held in
// uint16; or a .safetensors with an array a name. Throws UsageError, naming the flag, for another
// form and for a name that comes twice; FileError for a file that cannot be read.
std::vector<FileArray> read_arrays(std::string_view flag, const std::vector<std::string>& texts);
// A flag of one array whose name is known: "dy.npy", "dy=dy.npy", "dy:bf16=dy.npy".
FileArray read_array(std::string_view flag, std::string_view name, const std::string& text);

// Whether an operand may come in this type: floating types and integers. uint16 is not one of them:
// it is far more often bf16 that lacks its ":bf16", so it is refused.
bool is_floating(ElementType type);

// The values in `dtype`, each rounded once from the file's type (RNE). Throws for uint16.
Tensor to_operand(Context& context, std::string_view operation, const FileArray& from, DType dtype);
// As int64 labels. Throws for a label beyond int64.
Tensor to_labels(Context& context, std::string_view operation, const FileArray& from);

}  // namespace roundoff::cli

// make_fuzz_corpus FORMAT FOLDER: small valid files, and some that are nearly so, for a harness to
// start from.
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "engine/io/idx.h"
#include "engine/io/npy.h"
#include "engine/io/safetensors.h"
#include "tests/bench/evidence/cubin_bytes.h"
#include "tests/engine/io/bytes.h"

namespace {

using namespace roundoff;
using Corpus = std::map<std::string, Bytes>;

Corpus idx() {
  Corpus corpus;
  corpus["images"] = testing::idx_file(kIdxImages, {2, 3, 4}, 24);
  corpus["labels"] = testing::idx_file(kIdxLabels, {5}, 5);
  corpus["short"] = testing::idx_file(kIdxImages, {2, 3, 4}, 23);
  corpus["large"] = testing::idx_file(kIdxImages, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, 4);
  for (const auto& [name, file] : Corpus(corpus)) corpus[name + ".gz"] = testing::gzip_of(file);
  return corpus;
}

Corpus cifar() {
  Bytes two(2 * 3073, std::byte{1});
  return {{"two", two}, {"label", Bytes(3073, std::byte{10})}, {"short", Bytes(3072)}};
}

Corpus npy() {
  Corpus corpus;
  for (int t = 0; t < kElementTypes; ++t) {
    const auto type = static_cast<ElementType>(t);
    corpus[std::string(name(type))] =
        serialize_npy(type, {2, 3}, Bytes(6 * size_of(type), std::byte{1}));
  }
  for (const int version : {2, 3})
    corpus["version " + std::to_string(version)] =
        serialize_npy(ElementType::fp32, {2, 1, 2}, Bytes(16),
                      {.version = version, .big_endian = true, .fortran_order = true});
  corpus["scalar"] = serialize_npy(ElementType::fp64, {}, Bytes(8));
  corpus["empty"] = serialize_npy(ElementType::fp64, {3, 0}, {});
  return corpus;
}

Corpus safetensors() {
  Corpus corpus;
  const Bytes data(24);
  std::vector<TensorBytes> tensors;
  tensors.emplace_back("w", ElementType::fp32, Shape{2, 3}, data);
  tensors.emplace_back("step", ElementType::i64, Shape{}, std::span(data).first(8));
  tensors.emplace_back("none", ElementType::boolean, Shape{0}, std::span(data).first(0));
  corpus["checksum"] = serialize_safetensors(tensors, {{"epoch", "1"}});
  corpus["nothing"] = serialize_safetensors({});
  const std::string header =
      R"({"__metadata__":{"a":"b"},"x":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},)"
      R"("y":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}} )";
  Bytes plain(8);
  plain[0] = static_cast<std::byte>(header.size());
  testing::append(plain, testing::bytes_of(header));
  plain.resize(plain.size() + 7);
  corpus["plain"] = plain;
  return corpus;
}

Corpus cubin() {
  Corpus corpus;
  testing::CubinKernel kernel = testing::sample_kernel("_ZN1a1bIfLi3EEEvPf");
  kernel.max_threads = 256;
  kernel.shared = 2048;
  corpus["cubin"] = testing::cubin({kernel, testing::sample_kernel()}, 90);
  corpus["fat"] = testing::fat_binary({{.architecture = 80, .payload = testing::cubin({kernel})}});
  corpus["object"] = testing::host_object(corpus["fat"]);
  corpus["archive"] = testing::archive({corpus["object"], corpus["object"]});
  return corpus;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<Corpus()>> formats{
      {"cifar", cifar}, {"cubin", cubin}, {"idx", idx}, {"npy", npy}, {"safetensors", safetensors}};
  if (argc != 3 || !formats.contains(argv[1])) {
    std::cerr << "usage: make_fuzz_corpus cifar|cubin|idx|npy|safetensors FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder(argv[2]);
  std::filesystem::create_directories(folder);
  for (const auto& [name, bytes] : formats.at(argv[1])())
    write_file_atomically(folder / name, bytes);
  return 0;
}

// The rules for tensor maps.
#include "kernels/simt/tensor_map.h"

#include <doctest/doctest.h>

#include <string>

#include "kernels/base/check.h"

using namespace roundoff;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TiledMap matrix(const float* address, int rows, int columns) {
  TiledMap map;
  map.address = address;
  map.rank = 2;
  map.size[0] = static_cast<std::uint64_t>(columns);
  map.size[1] = static_cast<std::uint64_t>(rows);
  map.stride_bytes[1] = (map.size[0] * 4 + 15) / 16 * 16;
  map.box[0] = 32;
  map.box[1] = 8;
  return map;
}
Im2colMap image(const float* address) {
  Im2colMap map;
  map.address = address;
  for (int i = 0; i < 4; ++i) {
    map.size[i] = 4;
    map.stride_bytes[i] = std::uint64_t{4} << (2 * i);
  }
  map.channels = 4;
  map.pixels = 8;
  return map;
}

}  // namespace

TEST_CASE("a tensor map that the driver would refuse is refused, with the rule") {
  alignas(16) static float memory[4] = {};
  const auto message = [](auto&& change) {
    TiledMap map = matrix(memory, 100, 100);
    change(map);
    try {
      check(map);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(message([](TiledMap&) {}).empty());
  CHECK(contains(message([](TiledMap& m) { m.rank = 0; }), "rank 0"));
  CHECK(contains(message([](TiledMap& m) { m.rank = 6; }), "rank 6"));
  CHECK(contains(message([](TiledMap& m) { m.address = memory + 1; }), "multiple of 16"));
  CHECK(contains(message([](TiledMap& m) { m.address = nullptr; }), "address"));
  CHECK(contains(message([](TiledMap& m) { m.size[1] = 0; }), "size 0 of dimension 1"));
  CHECK(contains(message([](TiledMap& m) { m.size[1] = (1ULL << 32) + 1; }), "1 to 2^32"));
  CHECK(message([](TiledMap& m) { m.size[1] = 1ULL << 32; }).empty());
  CHECK(contains(message([](TiledMap& m) { m.stride_bytes[1] = 404; }), "multiple of 16"));
  CHECK(contains(message([](TiledMap& m) { m.stride_bytes[1] = 1ULL << 40; }), "below 2^40"));
  CHECK(contains(message([](TiledMap& m) { m.stride_bytes[1] = 384; }), "less than the 400"));
  CHECK(contains(message([](TiledMap& m) { m.box[1] = 257; }), "box of 257"));
  CHECK(contains(message([](TiledMap& m) { m.box[1] = 0; }), "box of 0"));
  CHECK(contains(message([](TiledMap& m) { m.box[0] = 31; }), "multiple of 16 bytes"));
  CHECK(contains(message([](TiledMap& m) { m.step[1] = 9; }), "step 9"));
  CHECK(contains(message([](TiledMap& m) { m.step[0] = 2; }), "dimension 0, which has none"));
  CHECK(contains(message([](TiledMap& m) { m.swizzle = Swizzle::span64; }), "at most"));
  CHECK(contains(message([](TiledMap& m) {
                   m.swizzle = Swizzle::span128;
                   m.box[0] = 16;
                 }),
                 "shorter than the swizzle"));
  CHECK(contains(message([](TiledMap& m) {
                   m.dtype = DType::i32;
                   m.fill = Fill::nan;
                 }),
                 "floating types only"));

  const auto im2col_message = [](auto&& change) {
    Im2colMap map = image(memory);
    change(map);
    try {
      check(map);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(im2col_message([](Im2colMap&) {}).empty());
  CHECK(contains(im2col_message([](Im2colMap& m) { m.rank = 2; }), "rank 2"));
  CHECK(contains(im2col_message([](Im2colMap& m) { m.lower[0] = -129; }), "-128 to 127"));
  CHECK(contains(im2col_message([](Im2colMap& m) { m.upper[1] = 128; }), "-128 to 127"));
  CHECK(contains(im2col_message([](Im2colMap& m) { m.upper[0] = -4; }), "empty bounding box"));
  CHECK(contains(im2col_message([](Im2colMap& m) { m.channels = 260; }), "260 channels"));
  CHECK(contains(im2col_message([](Im2colMap& m) { m.channels = 3; }), "multiple of 16 bytes"));
  CHECK(contains(im2col_message([](Im2colMap& m) { m.pixels = 1025; }), "1025 pixels"));
}

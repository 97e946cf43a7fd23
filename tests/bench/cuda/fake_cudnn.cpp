// A stand-in for libcudnn's backend interface: graphs of one convolution, with a bias and relu
// behind a forward one; strict about what has to be set and finalised before it is used.
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "bench/cuda/cudnn_api.h"
#include "tests/bench/cuda/fake_vendor.h"

namespace {

using fake::Kind;
namespace api = roundoff::bench::cudnn;
constexpr int kOk = 0, kBad = 2000, kUnsupported = 3000;

struct Descriptor {
  int kind = 0;
  bool final = false;
  std::map<int, std::vector<std::byte>> values;
  int engine = 0;

  template <class T>
  std::vector<T> all(int attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    std::vector<T> v(found->second.size() / sizeof(T));
    std::memcpy(v.data(), found->second.data(), v.size() * sizeof(T));
    return v;
  }
  template <class T>
  T one(int attribute, T otherwise = {}) const {
    const std::vector<T> v = all<T>(attribute);
    return v.empty() ? otherwise : v[0];
  }
  const Descriptor* link(int attribute) const {
    return static_cast<const Descriptor*>(one<void*>(attribute));
  }
};

std::size_t size_of_type(int type) {
  const std::map<int, std::size_t> sizes{{0, 8}, {1, 4}, {2, 1}, {3, 8},  {4, 4},
                                         {6, 8}, {7, 4}, {8, 4}, {14, 4}, {15, 8}};
  const auto found = sizes.find(type);
  return found == sizes.end() ? 0 : found->second;
}

// What each kind needs before it is final.
const std::map<int, std::set<int>>& needs() {
  static const std::map<int, std::set<int>> all{{0, {0, 1}},
                                                {1, {100, 101, 102, 103, 104, 105, 106}},
                                                {4, {200, 201}},
                                                {5, {400, 401}},
                                                {10, {700, 701, 702, 703, 704, 705}},
                                                {12, {706, 707, 708, 709, 710, 711}},
                                                {11, {712, 713, 714, 715, 716, 717}},
                                                {13, {750, 751, 753}},
                                                {15, {800, 801}},
                                                {16, {1000, 1001, 1003}},
                                                {17, {900, 901, 902, 903, 906}}};
  return all;
}

struct View {
  void* data = nullptr;
  Kind kind = Kind::fp32;
  std::vector<std::int64_t> dims, strides;
  std::int64_t at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
  }
};

struct Work {
  View x, w, y, bias;
  bool has_bias = false, relu = false;
  double keep = 0;
  std::vector<std::int64_t> stride, pad, dilation;

  // Calls f for every product of a convolution: places in x, w and y.
  template <class F>
  void each(F&& f) const {
    const std::int64_t groups = x.dims[1] / w.dims[1], a_group = w.dims[0] / groups;
    for (std::int64_t n = 0; n < y.dims[0]; ++n)
      for (std::int64_t k = 0; k < y.dims[1]; ++k)
        for (std::int64_t p = 0; p < y.dims[2]; ++p)
          for (std::int64_t q = 0; q < y.dims[3]; ++q)
            for (std::int64_t c = 0; c < w.dims[1]; ++c)
              for (std::int64_t r = 0; r < w.dims[2]; ++r)
                for (std::int64_t s = 0; s < w.dims[3]; ++s) {
                  const std::int64_t h = p * stride[0] + r * dilation[0] - pad[0];
                  const std::int64_t v = q * stride[1] + s * dilation[1] - pad[1];
                  if (h < 0 || v < 0 || h >= x.dims[2] || v >= x.dims[3]) continue;
                  f(x.at(n, k / a_group * w.dims[1] + c, h, v), w.at(k, c, r, s), y.at(n, k, p, q));
                }
  }

  void run(int kind) const {
    const View& to = kind == 10 ? y : kind == 12 ? x : w;
    std::map<std::int64_t, double> sums;
    std::int64_t size = 1;
    for (const std::int64_t d : to.dims) size *= d;
    for (std::int64_t i = 0; i < size; ++i)
      sums[i] = keep == 0 ? 0 : keep * fake::load(to.data, to.kind, i);
    each([&](std::int64_t ix, std::int64_t iw, std::int64_t iy) {
      const auto a = [](const View& v, std::int64_t i) { return fake::load(v.data, v.kind, i); };
      if (kind == 10) sums[iy] += a(x, ix) * a(w, iw);
      if (kind == 12) sums[ix] += a(y, iy) * a(w, iw);
      if (kind == 11) sums[iw] += a(x, ix) * a(y, iy);
    });
    for (auto& [i, sum] : sums) {
      // Channels are innermost.
      if (has_bias) sum += fake::load(bias.data, bias.kind, i % to.dims[1]);
      if (relu && sum < 0) sum = 0;
      fake::store(to.data, to.kind, i, sum);
    }
  }
};

void* g_stream = nullptr;

}  // namespace

FAKE_API int cudnnCreate(void** handle) {
  *handle = new int(9);
  return kOk;
}
FAKE_API int cudnnDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return kOk;
}
FAKE_API int cudnnSetStream(void*, void* stream) {
  g_stream = stream;
  return kOk;
}
FAKE_API std::size_t cudnnGetVersion() { return 91900; }
FAKE_API const char* cudnnGetErrorString(int status) {
  return status == kUnsupported ? "FAKE_NOT_SUPPORTED" : "FAKE_BAD_PARAM";
}
FAKE_API int cudnnBackendCreateDescriptor(api::Kind kind, void** d) {
  auto* made = new Descriptor;
  made->kind = static_cast<int>(kind);
  *d = made;
  return kOk;
}
FAKE_API int cudnnBackendDestroyDescriptor(void* d) {
  delete static_cast<Descriptor*>(d);
  return kOk;
}
FAKE_API int cudnnBackendSetAttribute(void* to, api::Attribute attribute, api::AttributeType type,
                                      std::int64_t count, const void* value) {
  auto& d = *static_cast<Descriptor*>(to);
  const std::size_t size = size_of_type(static_cast<int>(type));
  if (d.final || size == 0 || count < 1 || value == nullptr) return kBad;
  // Descriptors that are referred to are final.
  if (type == api::AttributeType::descriptor)
    for (std::int64_t i = 0; i < count; ++i) {
      const auto* other = static_cast<const Descriptor*>(static_cast<void* const*>(value)[i]);
      if (other == nullptr || !other->final) return kBad;
    }
  const auto* bytes = static_cast<const std::byte*>(value);
  d.values[static_cast<int>(attribute)].assign(bytes,
                                               bytes + size * static_cast<std::size_t>(count));
  return kOk;
}
FAKE_API int cudnnBackendGetAttribute(void* from, api::Attribute attribute, api::AttributeType,
                                      std::int64_t wanted, std::int64_t* count, void* value) {
  const auto& d = *static_cast<Descriptor*>(from);
  if (!d.final) return kBad;
  if (d.kind == 4 && attribute == api::Attribute::heuristic_results) {
    // Two engines, of which the first does not take anything.
    *count = wanted == 0 ? 2 : std::min<std::int64_t>(wanted, 2);
    for (std::int64_t i = 0; i < wanted; ++i) {
      auto* config = static_cast<Descriptor*>(static_cast<void**>(value)[i]);
      config->engine = static_cast<int>(i);
      config->final = true;
      config->values[1] = d.values.at(201);
    }
    return kOk;
  }
  if (d.kind == 5 && attribute == api::Attribute::plan_workspace) {
    *static_cast<std::int64_t*>(value) = 128;
    return kOk;
  }
  return kBad;
}
FAKE_API int cudnnBackendFinalize(void* what) {
  auto& d = *static_cast<Descriptor*>(what);
  if (const auto found = needs().find(d.kind); found != needs().end())
    for (const int attribute : found->second)
      if (d.values.count(attribute) == 0) return kBad;
  // Dilated convolutions are what this library does not take.
  if (d.kind == 15)
    for (void* o : d.all<void*>(801)) {
      const auto* operation = static_cast<const Descriptor*>(o);
      const int convolution = operation->kind == 10 ? 702 : operation->kind == 12 ? 708 : 714;
      if (operation->kind == 13) continue;
      if (operation->link(convolution)->all<std::int64_t>(102)[0] != 1) return kUnsupported;
    }
  if (d.kind == 5 && d.link(401)->engine == 0) return kUnsupported;
  d.final = true;
  return kOk;
}
FAKE_API int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  const auto& p = *static_cast<Descriptor*>(plan);
  const auto& v = *static_cast<Descriptor*>(pack);
  if (*static_cast<int*>(handle) != 9 || !p.final || !v.final) return kBad;
  if (v.one<void*>(1003) == nullptr || g_stream == nullptr) return kBad;
  const std::vector<std::int64_t> ids = v.all<std::int64_t>(1000);
  const std::vector<void*> pointers = v.all<void*>(1001);
  const auto view = [&](const Descriptor* t) {
    View r;
    const std::map<int, Kind> kinds{
        {0, Kind::fp32}, {1, Kind::fp64}, {2, Kind::fp16}, {9, Kind::bf16}};
    r.kind = kinds.at(t->one<int>(901));
    r.dims = t->all<std::int64_t>(902);
    r.strides = t->all<std::int64_t>(903);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == t->one<std::int64_t>(906)) r.data = pointers[i];
    return r;
  };
  const auto operations = p.link(401)->link(1)->all<void*>(801);
  const auto* o = static_cast<const Descriptor*>(operations[0]);
  const bool forward = o->kind == 10, input = o->kind == 12;
  Work work;
  work.x = view(o->link(forward ? 704 : input ? 710 : 716));
  work.w = view(o->link(forward ? 703 : input ? 709 : 715));
  work.y = view(o->link(forward ? 705 : input ? 711 : 717));
  const auto* convolution = o->link(forward ? 702 : input ? 708 : 714);
  work.keep = static_cast<double>(o->one<float>(forward ? 701 : input ? 707 : 713));
  work.stride = convolution->all<std::int64_t>(103);
  work.pad = convolution->all<std::int64_t>(105);
  work.dilation = convolution->all<std::int64_t>(102);
  for (std::size_t i = 1; i < operations.size(); ++i) {
    const auto* pointwise = static_cast<const Descriptor*>(operations[i]);
    if (pointwise->link(750)->one<int>(0) == 100) work.relu = true;
    if (pointwise->link(750)->one<int>(0) == 0) {
      work.has_bias = true;
      work.bias = view(pointwise->link(752));
    }
    work.y = view(pointwise->link(753));
  }
  const int kind = o->kind;
  if (work.x.data == nullptr || work.w.data == nullptr || work.y.data == nullptr) return kBad;
  fake::queue(g_stream, "fake_convolution", [=] { work.run(kind); });
  return kOk;
}

#pragma once
// Conversion of a convolution to calls of a library with rules of its own: no negative padding, no image with more than 2^31 - 1
// elements, channels in multiples of the tensor cores' load width. Host logic without a vendor's header, compiled everywhere.

#include <cstdint>
#include <string>
#include <vector>

#include "framework/tensor/dtype.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cuda {

using namespace kernel;

enum class Pass : std::uint8_t { forward, data, weight };
enum class Order : std::uint8_t { channels_last, channels_first };

// One call: everything that a plan depends on. The image is x or its cotangent, [N, D, H, W, C] or [N, C, D, H, W] by `order`;
// weights are [K, kd, kh, kw, C/groups] or [K, C/groups, kd, kh, kw].
struct ConvCall {
  Pass pass = Pass::forward;
  DType type = DType::float32;
  bool tf32 = false, deterministic = false;  // whether float32 factors may be rounded; whether only deterministic engines may be
                                             // used
  Order order = Order::channels_last;
  bool flat = false;  // two-dimensional: the depth is 1 everywhere and left out
  std::int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  Extent3 in{}, out{}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad_low{}, pad_high{};
  bool bias = false;  // added to the outputs, then the activation; forward only
  scalar::Fused fused{};
  std::int64_t alignment = 16;  // bytes to which every operand is aligned
  bool operator==(const ConvCall&) const = default;
};

// The problem that the call computes, on operands as they are in memory.
ConvProblem problem_of(const ConvCall& call);
std::string to_string(const ConvCall& call);
std::string_view name_of(Pass pass);

struct CallHash {
  std::size_t operator()(const ConvCall& call) const;
};

// Conversions of operands after which a library has a kernel, or a faster one.
struct Treatment {
  bool padded = false;  // the padding is written out in a copy of the image
  bool flat = true;     // two-dimensional where possible
  Order order = Order::channels_last;
  std::int64_t multiple = 1;  // channels are padded with zeros to this multiple; one group only
};

// A call, and how its operands are made from the problem's: element i of the call's image is element i + offset of the problem's,
// or zero outside it; additional channels are zeros. If nothing is moved, the call works on the operands themselves.
struct ConvForm {
  ConvCall call;
  Extent3 image{}, offset{};  // the call's image before planes became samples; its origin in the problem's image
  bool moves_image = false, moves_weights = false, moves_outputs = false;
  bool operator==(const ConvForm&) const = default;
};

ConvForm form_of(const ConvProblem& problem, Pass pass, DType type, const Treatment& treatment = {});
// The forms to try without repetitions, fastest expected first.
std::vector<ConvForm> forms_of(const ConvProblem& problem, Pass pass, DType type, bool tf32);

constexpr std::int64_t most_elements = 2147483647;

// The part of a convolution that one call computes: samples [n.begin, n.end), outputs [o.begin, o.end) and inputs [i.begin,
// i.end) in depth. If the depth is cut, the slab has one sample, so that every part of a tensor is contiguous. Slabs write
// disjoint outputs in the forward pass and disjoint inputs in the data pass; results of weight passes are added up.
struct Slab {
  Range n, o, i;
  ConvProblem problem;
};

// One slab if image and outputs, padding included, have at most `limit` elements; else cut by samples and, if one sample is too
// large, by depth. Error: one plane is too large.
std::vector<Slab> slabs_of(const ConvProblem& problem, Pass pass, std::int64_t limit = most_elements);

}  // namespace mpigrad::cuda

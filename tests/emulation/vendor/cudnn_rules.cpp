#include <map>
#include <stdexcept>

#include "tests/emulation/vendor/cudnn_descriptor.h"

namespace mpigrad::emulation::vendor {
namespace {

const std::vector<cudnnBackendAttributeType_t> int64{CUDNN_TYPE_INT64}, type{CUDNN_TYPE_DATA_TYPE}, boolean{CUDNN_TYPE_BOOLEAN},
    scale{CUDNN_TYPE_FLOAT, CUDNN_TYPE_DOUBLE}, real{CUDNN_TYPE_DOUBLE}, pointer{CUDNN_TYPE_VOID_PTR},
    descriptor{CUDNN_TYPE_BACKEND_DESCRIPTOR};
const std::vector<cudnnBackendDescriptorType_t> a_tensor{CUDNN_BACKEND_TENSOR_DESCRIPTOR};
constexpr std::int64_t most_dimensions = CUDNN_DIM_MAX, most_spatial = CUDNN_DIM_MAX - 2, many = 64;

std::vector<Rule> of_convolution(int convolution, int x, int w, int y, int alpha, int beta) {
  return {{convolution, descriptor, 1, 1, true, {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR}},
          {x, descriptor, 1, 1, true, a_tensor},
          {w, descriptor, 1, 1, true, a_tensor},
          {y, descriptor, 1, 1, true, a_tensor},
          {alpha, scale, 1, 1, true},
          {beta, scale, 1, 1, true}};
}

const std::map<cudnnBackendDescriptorType_t, std::vector<Rule>>& table() {
  static const std::map<cudnnBackendDescriptorType_t, std::vector<Rule>> rules{
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
       {{CUDNN_ATTR_TENSOR_DATA_TYPE, type, 1, 1, true},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, int64, 1, most_dimensions, true},
        {CUDNN_ATTR_TENSOR_STRIDES, int64, 1, most_dimensions, true},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, int64, 1, 1, true},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64, 1, 1, true},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, boolean}}},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
       {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, type, 1, 1, true},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, {CUDNN_TYPE_CONVOLUTION_MODE}, 1, 1, true},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64, 1, 1, true},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, int64, 1, most_spatial, true},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, int64, 1, most_spatial, true},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, int64, 1, most_spatial, true},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, int64, 1, most_spatial, true}}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       of_convolution(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA)},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       of_convolution(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA)},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       of_convolution(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA)},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
       {{CUDNN_ATTR_POINTWISE_MODE, {CUDNN_TYPE_POINTWISE_MODE}, 1, 1, true},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, type, 1, 1, true},
        {CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, {CUDNN_TYPE_NAN_PROPOGATION}},
        {CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, real},
        {CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, real},
        {CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, real}}},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, descriptor, 1, 1, true, {CUDNN_BACKEND_POINTWISE_DESCRIPTOR}},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, descriptor, 1, 1, true, a_tensor},
        {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, descriptor, 1, 1, false, a_tensor},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, descriptor, 1, 1, true, a_tensor},
        {CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, scale},
        {CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, scale}}},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, {CUDNN_TYPE_HANDLE}},
        {CUDNN_ATTR_OPERATIONGRAPH_OPS,
         descriptor,
         1,
         many,
         true,
         {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
          CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR}}}},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, descriptor, 1, 1, true, {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR}},
        {CUDNN_ATTR_ENGINEHEUR_MODE, {CUDNN_TYPE_HEUR_MODE}, 1, 1, true}}},
      // These are filled by heuristics and configurations.
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, {}},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR, {}},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, {CUDNN_TYPE_HANDLE}},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, descriptor, 1, 1, true, {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR}}}},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, int64, 1, many, true},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointer, 1, many, true},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, pointer, 1, 1, true}}}};
  return rules;
}

}  // namespace

const std::vector<Rule>& rules_of(cudnnBackendDescriptorType_t kind) {
  const auto found = table().find(kind);
  demand(found != table().end(), CUDNN_STATUS_NOT_SUPPORTED, fmt::format("descriptors of type {} are not emulated", int{kind}));
  return found->second;
}

std::size_t size_of(cudnnBackendAttributeType_t kind) {
  switch (kind) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_INT64: return sizeof(std::int64_t);
    case CUDNN_TYPE_FLOAT: return sizeof(float);
    case CUDNN_TYPE_DOUBLE: return sizeof(double);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void*);
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_NAN_PROPOGATION:
    case CUDNN_TYPE_NUMERICAL_NOTE:
    case CUDNN_TYPE_BEHAVIOR_NOTE:
    case CUDNN_TYPE_POINTWISE_MODE: return sizeof(int);
    default: throw Refusal{CUDNN_STATUS_BAD_PARAM, fmt::format("attribute type {} is not emulated", int{kind})};
  }
}

}  // namespace mpigrad::emulation::vendor

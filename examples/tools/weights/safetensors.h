#pragma once
// The safetensors format: the length of a header in 8 bytes, little-endian; the header, JSON; the elements, row-major.
// https://github.com/huggingface/safetensors

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "framework/optim/optimizer.h"

namespace mpigrad::weights {

struct TensorFile {
  std::vector<NamedTensor> tensors{};  // by name
  std::map<std::string, std::string> metadata{};
};

// Reads float64, float32, float16, bfloat16, int64, int32, int16, uint16, uint8 and bool; int8, uint32 and others are an Error
// that names the tensor. Errors: a header that is not JSON or longer than the file, elements that overlap, are missing or belong
// to no tensor, sizes that do not match shapes, an invalid or a repeated name (framework/tensor/tensor_name.h).
TensorFile read_safetensors(const std::filesystem::path& path);
// Writes under a temporary name until the file is complete. Errors in addition to those of names: a header that
// read_safetensors() would refuse.
void write_safetensors(const std::filesystem::path& path, const TensorFile& file, bool overwrite);

}  // namespace mpigrad::weights

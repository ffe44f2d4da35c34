#include "framework/base/error.h"
#include "models/data/images/decode.h"

namespace mpigrad::data {

bool png_available() { return false; }
Pixels decode_png(std::span<const std::byte>, int, const std::string& name) {
  fail("[png] {}: built without libpng: install libpng-dev and configure again", name);
}

}  // namespace mpigrad::data

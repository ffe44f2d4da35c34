#include "framework/base/error.h"
#include "models/data/images/decode.h"

namespace mpigrad::data {

bool jpeg_available() { return false; }
Pixels decode_jpeg(std::span<const std::byte>, int, const std::string& name) {
  fail("[jpeg] {}: built without libjpeg-turbo: install libturbojpeg0-dev and configure again", name);
}

}  // namespace mpigrad::data

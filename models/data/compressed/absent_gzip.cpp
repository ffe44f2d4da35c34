#include "framework/base/error.h"
#include "models/data/compressed/compressed.h"

namespace mpigrad::data {

bool gzip_available() { return false; }
ByteStreamPtr gunzip(ByteStreamPtr, const std::string& name) {
  fail("[gzip] {}: built without zlib: install zlib1g-dev and configure again", name);
}
Bytes gzip(std::span<const std::byte>) { fail("[gzip] built without zlib: install zlib1g-dev and configure again"); }

}  // namespace mpigrad::data

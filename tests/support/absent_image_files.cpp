#include "framework/base/error.h"
#include "tests/support/image_files.h"

namespace mpigrad::testing {

bool pictures_can_be_written() { return false; }
void write_png(const std::filesystem::path&, int, int, int, const std::vector<std::uint8_t>&) { fail("[test] no libpng"); }
void write_jpeg(const std::filesystem::path&, int, int, int, const std::vector<std::uint8_t>&) {
  fail("[test] no libjpeg-turbo");
}

}  // namespace mpigrad::testing

#include "framework/base/error.h"
#include "models/data/records/example.h"

namespace mpigrad::data {

bool examples_available() { return false; }

Example::Example(std::string_view, std::string file) {
  fail("[tfrecord] {}: this build reads no TFRecord files; install libprotobuf-dev and protobuf-compiler", file);
}
std::string_view Example::bytes(const std::string&) const { return {}; }
std::vector<double> Example::numbers(const std::string&) const { return {}; }

std::string example_record(const std::string&, std::string_view, const std::string&, const std::vector<float>&) {
  fail("[tfrecord] this build writes no TFRecord files; install libprotobuf-dev and protobuf-compiler");
}

}  // namespace mpigrad::data

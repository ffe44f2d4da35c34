#pragma once
// TensorFlow's tf.train.Example: named lists of bytes or of numbers.

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mpigrad::data {

// True if this build reads and writes examples: it was built with protobuf.
bool examples_available();

// A view of a record, which must outlive it: volumes are not copied.
class Example {
 public:
  // Errors, with the file: not such a message; a build without protobuf.
  Example(std::string_view record, std::string file);

  // The single byte string of that name. Error: none, or another kind; the message lists the existing features.
  std::string_view bytes(const std::string& name) const;
  // The floats or integers of that name. Error: none, or another kind.
  std::vector<double> numbers(const std::string& name) const;

 private:
  std::string_view feature(const std::string& name) const;
  std::string file_;
  std::map<std::string, std::string_view, std::less<>> features_;  // each as encoded in the record
};

// A record with a volume's bytes and its targets.
std::string example_record(const std::string& volume, std::string_view bytes, const std::string& targets,
                           const std::vector<float>& numbers);

}  // namespace mpigrad::data

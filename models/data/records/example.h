#pragma once
// TensorFlow's tf.train.Example: named lists of bytes or of numbers.

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mpigrad::data {

// Whether this build reads and writes them: it was made with protobuf.
bool examples_available();

// A view of a record, which must outlive it: volumes are not copied.
class Example {
 public:
  // Errors, with the file: no such message; a build without protobuf.
  Example(std::string_view record, std::string file);

  // The one string of bytes of a name. Error: none, or another kind; what there is, is listed.
  std::string_view bytes(const std::string& name) const;
  // Floats or integers. Error: so.
  std::vector<double> numbers(const std::string& name) const;

 private:
  std::string_view feature(const std::string& name) const;
  std::string file_;
  std::map<std::string, std::string_view, std::less<>> features_;  // each as it is in the record
};

// A record of a volume's bytes and of targets.
std::string example_record(const std::string& volume, std::string_view bytes, const std::string& targets,
                           const std::vector<float>& numbers);

}  // namespace mpigrad::data

#pragma once
// TensorFlow's tf.train.Example: named lists of bytes or of numbers.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mpigrad::data {

// Whether this build reads and writes them: it was made with protobuf.
bool examples_available();

class Example {
 public:
  // Errors, with the file: no such message; a build without protobuf.
  Example(std::string_view record, const std::string& file);
  ~Example();
  Example(const Example&) = delete;
  Example& operator=(const Example&) = delete;

  // The one string of bytes of a name. Error: none, or another kind; what there is, is listed. Lives as long as this does.
  std::string_view bytes(const std::string& name) const;
  // Floats or integers. Error: so.
  std::vector<double> numbers(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A record of a volume's bytes and of targets.
std::string example_record(const std::string& volume, std::string_view bytes, const std::string& targets,
                           const std::vector<float>& numbers);

}  // namespace mpigrad::data

#pragma once
// `PROGRAM new NAME`: a trainer of one's own to begin with.

#include <string>

namespace mpigrad::trainer {

// Makes a folder NAME with NAME.cpp (examples/first/own_trainer.cpp under that name), meson.build and recipe.toml, and returns
// what to do next. UsageError: a name that is no identifier, or a file or folder of that name.
std::string new_program(const std::string& name);

}  // namespace mpigrad::trainer

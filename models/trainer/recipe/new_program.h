#pragma once
// `PROGRAM new NAME`: makes a trainer of your own to start from.

#include <string>

namespace mpigrad::trainer {

// Makes a folder NAME with NAME.cpp (examples/first/own_trainer.cpp under that name), meson.build and recipe.toml, and returns
// the next steps as text. UsageError: a name that is not an identifier; a file or folder of that name exists.
std::string new_program(const std::string& name);

}  // namespace mpigrad::trainer

#pragma once
// Declares the settings of a program as keys.

#include "models/trainer/program/setting.h"
#include "models/trainer/recipe/keys.h"

namespace mpigrad::trainer {

// "network.width" for "width"; "data.parts" for "data.parts".
std::string key_of(const Setting& setting);
// Declares a key for each setting, bound to its value in `values`, whose current value is the default. Error: a key or a flag of
// that name exists already.
void add_setting_keys(Keys& keys, const std::vector<Setting>& settings, Values& values);

}  // namespace mpigrad::trainer

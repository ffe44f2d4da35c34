#pragma once
// Settings of a program as keys.

#include "models/trainer/program/setting.h"
#include "models/trainer/recipe/keys.h"

namespace mpigrad::trainer {

// "network.width" for "width", "data.parts" for itself.
std::string key_of(const Setting& setting);
// A key for each setting, bound to its value in `values`, which is the default now. Error: a key or a flag of the name is there.
void add_setting_keys(Keys& keys, const std::vector<Setting>& settings, Values& values);

}  // namespace mpigrad::trainer

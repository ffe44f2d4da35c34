#include "models/trainer/program/setting_keys.h"

#include <algorithm>

namespace mpigrad::trainer {
namespace {

// --full-resolution for "full_resolution", --parts for "data.parts".
std::string flag_of(const std::string& name) {
  auto flag = "--" + name.substr(name.rfind('.') + 1);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

}  // namespace

std::string key_of(const Setting& setting) {
  return setting.name.find('.') != std::string::npos ? setting.name : "network." + setting.name;
}

void add_setting_keys(Keys& keys, const std::vector<Setting>& settings, Values& values) {
  for (const auto& setting : settings) {
    auto& value = values[setting.name] = setting.value;
    auto& key = std::visit([&](auto& x) -> Key& { return keys.add(key_of(setting), x, setting.rule, setting.help); }, value);
    key.with_unit(setting.unit).with_default(setting.default_text);
    const auto flag = flag_of(setting.name);
    for (const auto& other : keys.all())
      require(other.flag != flag || !setting.has_flag, "[trainer] the setting '{}' has the flag of the key {}", setting.name,
              other.name);
    if (setting.has_flag) key.with_flag(flag);
    else key.instead_of(flag);
  }
}

}  // namespace mpigrad::trainer

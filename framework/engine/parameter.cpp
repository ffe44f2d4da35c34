#include "framework/engine/parameter.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>

namespace mpigrad {
namespace {

struct NamedParameter {
  std::uint64_t id = 0;
  std::string name;
};
struct RecentNames {
  std::array<NamedParameter, 16> all;
  std::size_t next = 0;
};
thread_local RecentNames recent_names;

}  // namespace

void detail::name_parameter(const Tensor& parameter, const std::string& name) {
  recent_names.all[recent_names.next] = {parameter.id(), name};
  recent_names.next = (recent_names.next + 1) % recent_names.all.size();
}

std::string detail::names_of(std::span<const Tensor> operands) {
  std::string text;
  for (std::size_t i = 0; i < operands.size(); ++i)
    for (const auto& [id, name] : recent_names.all) {
      if (!operands[i] || operands[i].id() != id) continue;
      text += fmt::format("{}operand {} is {}", text.empty() ? "" : ", ", i, name);
      break;
    }
  return text;
}

std::string detail::parameter_hint(std::span<const Tensor> operands, std::string_view otherwise) {
  for (const auto& x : operands)
    for (const auto& [id, name] : recent_names.all)
      if (x && x.id() == id)
        return x.layout()
                   ? fmt::format(
                         "{} is a parameter, which is replicated: elementwise functions of it and of x are written as "
                         "they are; for others compute with parameter_for(x, parameter) and x.without_layout(), and "
                         "give the result its layout by with_layout() (examples/first/own_layer.cpp)",
                         name)
                   : fmt::format("{} is a parameter of a network that was built for one rank: build() it with its input's layout",
                                 name);
  return std::string(otherwise);
}

Parameter& Parameters::add(std::string name, const Tensor& value, bool decay) {
  require(is_floating(value.dtype()), "[parameter] {} must be floating-point: {}", name, value);
  require(!is_half(value.dtype()),
          "[parameter] {} is to be float32 or float64, which optimizers need; cast it where it is used: {}", name, value);
  require(!value.storage() || value.storage()->writable(),
          "[parameter] {} lies in read-only memory, which an optimizer would change: {}", name, value);
  for (const auto& other : list_) require(other->name != name, "[parameter] there are two parameters named {}", name);
  packed_ = false;
  list_.push_back(std::make_unique<Parameter>(Parameter{std::move(name), value.as_variable(), decay}));
  return *list_.back();
}

void Parameters::pack() {
  constexpr std::int64_t alignment = 64;
  const auto rounded = [](std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  // Memory of the program stays where it is, so that the program sees what optimizers write.
  const auto moves = [](const Tensor& value, DType dtype) {
    return value.dtype() == dtype && !(value.storage() && value.storage()->foreign());
  };
  for (const DType dtype : {DType::float32, DType::float64}) {
    std::int64_t bytes = 0;
    for (const auto& parameter : list_)
      if (moves(parameter->value, dtype)) bytes += rounded(parameter->value.bytes());
    if (bytes == 0) continue;
    std::shared_ptr<Storage> arena;
    std::int64_t offset = 0;
    for (auto& parameter : list_) {
      auto& value = parameter->value;
      if (!moves(value, dtype)) continue;
      if (!arena) arena = std::make_shared<Storage>(bytes, value.device());
      if (value.raw()) detail::copy_bytes(value.device(), arena->data() + offset, value.raw(), value.bytes());
      const auto size = rounded(value.bytes());
      value = Tensor::moved(value, std::make_shared<Storage>(arena, offset, value.bytes()), 0);
      offset += size;
    }
  }
  packed_ = true;
}

const Parameter& Parameters::find(const std::string& name) const {
  for (const auto& parameter : list_)
    if (parameter->name == name) return *parameter;
  fail("[parameter] there is none named {}", name);
}

std::vector<Tensor> Parameters::tensors() const {
  std::vector<Tensor> result;
  for (const auto& parameter : list_) result.push_back(parameter->value);
  return result;
}

std::size_t Parameters::freeze(const std::string& pattern, bool frozen) {
  require_nothing_accumulated("freeze");
  std::size_t count = 0;
  for (auto& parameter : list_) {
    if (fnmatch(pattern.c_str(), parameter->name.c_str(), 0) != 0) continue;
    parameter->frozen = frozen;
    ++count;
  }
  require(count > 0, "[parameter] none is called '{}'", pattern);
  return count;
}

const Tensor& Parameters::zeros_for(std::size_t i) {
  const auto& value = list_[i]->value;
  auto& zeros = zeros_[i];
  if (!zeros || zeros.type() != value.type() || zeros.device() != value.device()) zeros = zeros_like(value.without_layout());
  return zeros;
}

std::int64_t Parameters::elements() const {
  std::int64_t sum = 0;
  for (const auto& parameter : list_) {
    const auto& layout = parameter->value.layout();
    sum += layout ? layout->global.elements() : parameter->value.elements();
  }
  return sum;
}

void Parameters::defer(std::uint64_t id, const Tensor& cotangent, const StartReduction& reduce) {
  auto& slot = deferred_[{id, reduce.over}];
  slot = {slot.cotangent ? mpigrad::add(slot.cotangent, cotangent) : cotangent, reduce};
}

Tensor Parameters::take_deferred(std::uint64_t id, const StartReduction& reduce) {
  const auto found = deferred_.find({id, reduce.over});
  if (found == deferred_.end()) return {};
  Tensor result = std::move(found->second.cotangent);
  deferred_.erase(found);
  return result;
}

bool Parameters::accumulating() const { return accumulating_; }

void Parameters::require_nothing_accumulated(std::string_view who) const {
  require(!accumulating(),
          "[{}] the parameters keep gradients of earlier micro-batches, which would enter the result: finish them with "
          "{{.accumulate = false}}, or discard them with drop_accumulated()",
          who);
}

void Parameters::drop_accumulated() {
  accumulated_.clear();
  deferred_.clear();
  accumulating_ = false;
}

Gradients Parameters::collect(std::vector<Tensor> gradients, bool accumulate) {
  // Parameters that only earlier micro-batches used, in the order of the list on every rank.
  std::vector<std::pair<std::size_t, std::unique_ptr<PendingCotangent>>> reductions;
  if (!accumulate)
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const auto id = list_[i]->value.id();
      for (auto at = deferred_.lower_bound({id, 0}); at != deferred_.end() && at->first.first == id; at = deferred_.erase(at))
        reductions.emplace_back(i, at->second.reduce.start(at->second.cotangent));
    }
  accumulating_ = accumulate;
  for (auto& [i, reduction] : reductions) gradients[i] = mpigrad::add(gradients[i], reduction->wait());

  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto id = list_[i]->value.id();
    if (!list_[i]->frozen) {
      auto& kept = accumulated_[id];
      if (kept) gradients[i] = gradients[i] ? mpigrad::add(gradients[i], kept) : kept;
      kept = accumulate ? gradients[i] : Tensor();
      if (!gradients[i]) gradients[i] = zeros_like(list_[i]->value.without_layout());
    }
    if (const auto& layout = list_[i]->value.layout(); layout && !layout->has(Placement::partial))
      gradients[i] = gradients[i].with_layout(layout);
  }
  return Gradients(std::move(gradients));
}

}  // namespace mpigrad

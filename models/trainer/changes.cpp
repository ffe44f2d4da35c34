#include "models/trainer/changes.h"

#include <algorithm>
#include <vector>

#include "framework/base/joined.h"
#include "framework/base/printable.h"

namespace mpigrad::trainer {
namespace {

constexpr const char *rate_note = "learning rate", *schedule_note = "schedule";

// The schedule in words. Two texts are equal if the schedules (make_schedule) are, except for the rate.
std::string schedule_text(const Options& o, std::int64_t steps) {
  std::string text = o.schedule;
  if (o.schedule == "cosine" || o.schedule == "linear") text += fmt::format(" over {} epochs", o.training.fit.epochs);
  if (o.schedule == "polynomial") text += fmt::format(" of power {} over {} epochs", o.power, o.training.fit.epochs);
  if (o.schedule == "step") text += fmt::format(" times {} after epochs {}", o.decay_factor, joined(boundaries_of(o), ", "));
  if (o.warm_up > 0)
    text += fmt::format(", {} epochs of warm-up", std::min(o.warm_up, static_cast<double>(o.training.fit.epochs)));
  if (o.schedule == "constant" && o.warm_up == 0) return text;
  return text + fmt::format(", {} steps an epoch", steps);
}

std::string difference(const std::string& name, const Notes& before, const Notes& now) {
  return fmt::format("{} {}, now it is {}", name, printable(before.at(name)), now.at(name));
}

bool differs(const std::string& name, const Notes& before, const Notes& now) {
  const auto there = before.find(name), here = now.find(name);
  return there != before.end() && here != now.end() && there->second != here->second;
}

}  // namespace

bool is_data_note(const std::string& name) {
  static const std::vector<std::string> names{"samples",    "all samples",      "test samples",
                                              "validation", "training samples", data_note};
  return std::find(names.begin(), names.end(), name) != names.end();
}

Notes option_notes(const Options& o, std::int64_t steps) {
  const auto number = [](double x) { return fmt::format("{}", x); };
  const auto flag = [](bool x) { return std::string(x ? "yes" : "no"); };
  Notes notes{{rate_note, number(o.optimizer_options.learning_rate)},
              {schedule_note, schedule_text(o, steps)},
              {"weight decay", number(o.optimizer_options.weight_decay)},
              {"largest norm of gradients", o.training.fit.clip_norm > 0 ? number(o.training.fit.clip_norm) : "none"},
              {"parts of a batch", std::to_string(o.training.fit.accumulate)},
              {"flips", flag(o.flips)},
              {"shifts", flag(o.shifts)},
              {"transpositions", flag(o.transpositions)},
              {"dropout's kept part", o.keep < 0 ? "the network's own" : number(o.keep)},
              {"momentum of batch norm", number(o.norm_momentum)},
              {"statistics of batch norm", o.statistics},
              {"frozen parameters", o.freeze.empty() ? "none" : joined(o.freeze, " ")}};
  if (takes_momentum(o)) notes["momentum"] = number(o.optimizer_options.momentum) + (o.nesterov ? ", Nesterov" : "");
  return notes;
}

void refuse_changes(const Options& o, const std::string& file, const Notes& before, const Notes& now) {
  if (o.allow_changes) return;
  std::vector<std::string> changes;
  for (const auto* name : {rate_note, schedule_note})
    if (differs(name, before, now)) changes.push_back(difference(name, before, now));
  if (!changes.empty())
    throw UsageError(fmt::format("[resume] {} was trained with {}; checkpoint.allow_changes continues it all the same", file,
                                 joined(changes, "; with ")));
}

void list_changes(const std::string& file, const Notes& before, const Notes& now) {
  for (const auto& [name, text] : now)
    if (!is_data_note(name) && differs(name, before, now))
      fmt::print(stderr, "warning: {} was trained with {}\n", file, difference(name, before, now));
  if (now.contains(schedule_note) && !before.contains(schedule_note))
    fmt::print(stderr, "warning: {} does not know with which schedule and options it was trained: nothing is compared\n", file);
}

}  // namespace mpigrad::trainer

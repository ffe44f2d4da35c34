// What is checked before a replay begins.

#include <algorithm>
#include <unordered_set>

#include "framework/engine/tape.h"

namespace mpigrad {

// Checked before the replay: an error during it would leave other ranks waiting for this rank's adjoint messages.
void Tape::require_waited() const {
  std::unordered_set<const std::string*> started;
  for (const auto& entry : entries_)
    if (entry.request && !started.erase(entry.request.get())) started.insert(entry.request.get());
  for (const auto& entry : entries_)  // report the first one
    if (entry.request && started.contains(entry.request.get()))
      fail("[{}] under this tape there is no wait for this call: {}", entry.name, *entry.request);
}

// An Error, because zeros for an objective that the tape did not record would look like a result.
void Tape::require_known(const Tensor& objective, const std::vector<Tensor>& with_respect_to) const {
  const auto is_objective = [&](const Tensor& y) { return y.id() == objective.id(); };
  require_unspent();
  if (objective.is_constant() || std::any_of(with_respect_to.begin(), with_respect_to.end(), is_objective)) return;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry)
    if (std::any_of(entry->outputs.begin(), entry->outputs.end(), is_objective)) return;
  for (const auto& entry : entries_)
    if (std::any_of(entry.inputs.begin(), entry.inputs.end(), is_objective)) return;
  fail("[gradient] the objective was not computed under this tape (a rank without one passes none): {}", objective);
}

}  // namespace mpigrad

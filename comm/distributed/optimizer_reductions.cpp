#include "comm/distributed/optimizer_reductions.h"

namespace mpigrad {

NormReduction sum_norms_over(const Communicator& comm, std::function<bool(const Parameter&)> is_cut) {
  return [comm, is_cut = std::move(is_cut)](const Parameters& parameters, std::span<double> squares) {
    std::vector<double> cut;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (is_cut(parameters[i])) cut.insert(cut.end(), {squares[2 * i], squares[2 * i + 1]});
    if (cut.empty() || !comm.transport().can_ask()) return;
    std::vector<double> sums(cut.size());
    comm.transport().allreduce(cut.data(), sums.data(), static_cast<std::int64_t>(cut.size()), DType::float64, CombineOp::sum);
    std::size_t next = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (is_cut(parameters[i])) squares[2 * i] = sums[next++], squares[2 * i + 1] = sums[next++];
  };
}

Agreement all_agree(const Communicator& comm) {
  return [comm](bool mine) {
    if (comm.size() == 1 || !comm.transport().can_ask()) return mine;
    std::int64_t yes = mine ? 1 : 0, all = 0;
    comm.transport().allreduce(&yes, &all, 1, DType::int64, CombineOp::min);
    return all == 1;
  };
}

}  // namespace mpigrad

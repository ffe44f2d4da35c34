#include "comm/collectives/alltoallw.h"

#include <algorithm>
#include <array>

namespace mpigrad {
namespace ops {

Types AllToAllW::infer(Inputs in) const {
  const auto size = static_cast<std::size_t>(comm.size());
  require(in.size() == size + 1 && receive.size() == size, "[alltoallw] {} blocks and {} types for {} ranks", in.size() - 1,
          receive.size(), size);
  return receive;
}

void AllToAllW::run(Inputs in, Outputs out) const {
  if (!comm.moves(in[0])) return;
  std::vector<Message> sends, receives;
  const int tag = comm.side().max_tag();
  for (std::size_t s = 0; s < receive.size(); ++s) {
    const int peer = static_cast<int>(s);
    if (in[s].bytes() > 0) sends.push_back({peer, tag, in[s].raw(), in[s].bytes()});
    if (out[s].bytes() > 0) receives.push_back({peer, tag, out[s].raw(), out[s].bytes()});
  }
  comm.side(in[0].device()).start_round(sends, receives, DType::uint8).wait();
}

Tensors AllToAllW::vjp(const Replay& at, Inputs g) const {
  // An integer block has no cotangent; an empty tensor is sent in its place.
  Tensors back;
  Types types;
  UseDevice device(at.input(0).device());
  const auto none = zeros({0});
  for (std::size_t s = 0; s < g.size(); ++s) {
    back.push_back(is_differentiable(receive[s].dtype) ? g[s] : none);
    types.push_back(is_differentiable(at.input(s).dtype()) ? at.input(s).type() : none.type());
  }
  auto result = alltoallw(back, comm, types);
  for (std::size_t s = 0; s < result.size(); ++s)
    if (!is_differentiable(at.input(s).dtype())) result[s] = {};
  result.emplace_back();
  return result;
}

}  // namespace ops

std::vector<Tensor> alltoallw(const std::vector<Tensor>& blocks, const Communicator& comm, Types receive) {
  require(blocks.size() == static_cast<std::size_t>(comm.size()), "[alltoallw] {} blocks for {} ranks", blocks.size(),
          comm.size());
  if (receive.empty()) {
    require(comm.transport().can_ask(), "[alltoallw] the dry transport cannot ask the others: name the types received");
    using Described = std::array<std::int64_t, 2 + Shape::max_rank>;  // type, number of dimensions, extents
    std::vector<Described> mine(blocks.size()), theirs(blocks.size());
    for (std::size_t s = 0; s < blocks.size(); ++s) {
      mine[s] = {static_cast<std::int64_t>(blocks[s].dtype()), blocks[s].rank()};
      for (int d = 0; d < blocks[s].rank(); ++d) mine[s][static_cast<std::size_t>(2 + d)] = blocks[s].dim(d);
    }
    const Rows counts(blocks.size(), static_cast<std::int64_t>(std::tuple_size_v<Described>));
    comm.transport().alltoall(mine.data(), counts, theirs.data(), counts, DType::int64);
    for (const auto& described : theirs) {
      std::vector<std::int64_t> extents(described.begin() + 2, described.begin() + 2 + described[1]);
      receive.push_back({Shape(extents), static_cast<DType>(described[0])});
    }
  }
  const auto differentiable = [](const auto& block) { return is_differentiable(block.dtype); };
  bool recorded = std::any_of(receive.begin(), receive.end(), differentiable);
  Tensors in = blocks;
  for (const auto& block : blocks) recorded = recorded || differentiable(block.type());
  UseDevice device(blocks[0].device());
  in.push_back(recorded ? zeros({0}) : constant(zeros({0})));
  return mpigrad::apply_all(ops::AllToAllW{comm, std::move(receive)}, std::move(in));
}

}  // namespace mpigrad

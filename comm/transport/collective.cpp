#include "comm/transport/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "comm/transport/count_checks.h"
#include "framework/base/joined.h"

namespace mpigrad {

using transport_checks::offset;
using transport_checks::total;

namespace {

using Counts = std::span<const std::int64_t>;

Counts arriving_counts(const Collective& call) {
  return call.kind == CollectiveKind::alltoall ? call.receive_counts : call.counts;
}

// The elements of a buffer of rank `rank` that go to or come from `peer`.
BufferSlice slice_of(BufferPart part, const Collective& call, Counts counts, int rank, int peer) {
  const auto me = static_cast<std::size_t>(rank), other = static_cast<std::size_t>(peer);
  switch (part) {
    case BufferPart::none: return {};
    case BufferPart::count: return {0, call.count};
    case BufferPart::own: return {0, counts[me]};
    case BufferPart::all: return {offset(counts, other), counts[other]};
  }
  return {};
}

std::int64_t elements_of(BufferPart part, const Collective& call, Counts counts, int rank) {
  return part == BufferPart::all ? total(counts) : slice_of(part, call, counts, rank, rank).count;
}

}  // namespace

BufferSlice sent_slice(const Collective& call, int rank, int peer) {
  const auto traits = traits_of(call.kind);
  if ((traits.from_root && rank != call.root) || (traits.to_root && peer != call.root)) return {};
  return slice_of(traits.in, call, call.counts, rank, peer);
}

BufferSlice received_slice(const Collective& call, int rank, int peer) {
  const auto traits = traits_of(call.kind);
  if ((traits.from_root && peer != call.root) || (traits.to_root && rank != call.root)) return {};
  return slice_of(traits.out, call, arriving_counts(call), rank, peer);
}

MovedElements moved_elements(const Collective& call, int rank) {
  const auto traits = traits_of(call.kind);
  const bool root = rank == call.root;
  const bool gives = !traits.from_root || root;
  const bool gets = call.kind == CollectiveKind::bcast ? !root : !traits.to_root || root;  // a bcast's root has it already
  return {gives ? elements_of(traits.in, call, call.counts, rank) : 0,
          gets ? elements_of(traits.out, call, arriving_counts(call), rank) : 0};
}

void check_reduction(std::string_view call, DType type, CombineOp op) {
  require(type != DType::uint16, "[{}] nothing computes with {} here; cast to int32 first", call, name_of(type));
  require(type != DType::boolean || traits_of(op).booleans, "[{}] booleans reduce by max (or) and min (and), not by {}", call,
          name_of(op));
  require(!is_complex(type) || op == CombineOp::sum, "[{}] complex numbers reduce by sum, not by {}", call, name_of(op));
  require(!is_floating(type) || traits_of(op).floating, "[{}] {} is for integers and booleans, not for {}", call, name_of(op),
          name_of(type));
}

void check_collective(std::string_view name, const Collective& call, int size) {
  using namespace transport_checks;
  const auto traits = traits_of(call.kind);
  if (traits.counts()) check_counts(name, call.counts, size);
  else check_count(name, call.count);
  if (call.kind == CollectiveKind::alltoall) check_counts(name, call.receive_counts, size);
  if (traits.reduces) check_reduction(name, call.type, call.op);
  if (traits.rooted()) check_rank(name, "root", call.root, size);
}

std::string describe(const Call& call) {
  std::vector<std::string> parts;
  const auto traits = traits_of(call.kind);
  if (!traits.counts() && call.kind != CollectiveKind::barrier)
    parts.push_back(fmt::format("{} {}", call.count, name_of(call.type)));
  if (!call.counts.empty()) parts.push_back(fmt::format("[{}] {}", joined(call.counts, ", "), name_of(call.type)));
  if (!call.receive_counts.empty()) parts.push_back(fmt::format("receiving [{}]", joined(call.receive_counts, ", ")));
  if (traits.reduces) parts.emplace_back(name_of(call.op));
  if (call.root >= 0) parts.push_back(fmt::format("root {}", call.root));
  return fmt::format("{}({})", call.name, joined(parts, ", "));
}

std::string disagreement(std::span<const Call* const> calls) noexcept {
  const Call& first = *calls[0];
  const bool pairwise = first.kind == CollectiveKind::alltoall;
  const auto agrees = [&](const Call& a) {
    return a.name == first.name && a.type == first.type && a.op == first.op && a.root == first.root && a.count == first.count &&
           (pairwise || std::equal(a.counts.begin(), a.counts.end(), first.counts.begin(), first.counts.end()));
  };
  for (std::size_t r = 1; r < calls.size(); ++r) {
    if (agrees(*calls[r])) continue;
    std::map<std::string, std::vector<std::size_t>> kinds;
    for (std::size_t q = 0; q < calls.size(); ++q) kinds[describe(*calls[q])].push_back(q);
    std::vector<std::string> parts;
    for (const auto& [what, ranks] : kinds)
      parts.push_back(fmt::format("{} {} {}", ranks.size() == 1 ? "rank" : "ranks", joined(ranks, ", "), what));
    std::sort(parts.begin(), parts.end());
    return fmt::format("[{}] the ranks' calls differ: {}", first.name, joined(parts, "; "));
  }
  for (std::size_t r = 0; pairwise && r < calls.size(); ++r)
    for (std::size_t s = 0; s < calls.size(); ++s)
      if (calls[r]->counts[s] != calls[s]->receive_counts[r])
        return fmt::format("[{}] rank {} sends {} {} to rank {}, which expects {}", first.name, r, calls[r]->counts[s],
                           name_of(first.type), s, calls[s]->receive_counts[r]);
  return {};
}

}  // namespace mpigrad

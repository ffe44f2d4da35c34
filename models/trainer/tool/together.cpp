#include "models/trainer/tool/together.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "framework/base/fnv.h"
#include "framework/base/new_file.h"

namespace mpigrad::tool {

void together(Transport& transport, const std::function<void()>& f) {
  const auto failure = detail::first_failure(transport, f, [](const std::exception& error) -> std::int64_t {
    return dynamic_cast<const UsageError*>(&error) != nullptr || dynamic_cast<const FileInTheWay*>(&error) != nullptr;
  });
  if (!failure.failed) return;
  if (failure.kind != 0) throw UsageError(failure.text);
  throw SharedError(failure.text);
}

std::uint64_t fingerprint(const std::vector<std::string>& texts) {
  auto hash = fnv_start;
  for (const auto& text : texts) hash = fnv1a(fnv1a(hash, text), 0);
  return hash;
}

void require_same(Transport& transport, const std::vector<std::string>& texts,
                  const std::function<void(const Difference&)>& refuse) {
  const auto mine = static_cast<std::int64_t>(fingerprint(texts));
  const auto size = static_cast<std::size_t>(transport.size());
  std::vector<std::int64_t> all(size);
  transport.allgather(&mine, all.data(), std::vector<std::int64_t>(size, 1), DType::int64);
  const auto other = std::find_if(all.begin(), all.end(), [&](auto hash) { return hash != all[0]; });
  if (other == all.end()) return;
  std::string joined;
  for (const auto& text : texts) joined += text, joined.push_back('\0');
  joined = text_of_rank(transport, std::move(joined));
  together(transport, [&] {
    Difference difference{.rank = static_cast<int>(other - all.begin())};
    if (transport.rank() != difference.rank) return;
    for (std::size_t begin = 0; begin < joined.size(); begin = joined.find('\0', begin) + 1)
      difference.first.emplace_back(joined.c_str() + begin);
    const auto shorter = static_cast<std::ptrdiff_t>(std::min(texts.size(), difference.first.size()));
    difference.place = static_cast<std::size_t>(
        std::mismatch(texts.begin(), texts.begin() + shorter, difference.first.begin()).first - texts.begin());
    refuse(difference);
  });
}

ErrorRendezvous::ErrorRendezvous(Transport& transport)
    : transport_(transport.can_ask() && !transport.in_one_process() && transport.size() > 1 ? transport.duplicate() : nullptr) {}

bool ErrorRendezvous::all_end(const std::string& error) {
  using namespace std::chrono;
  if (!transport_) return false;
  struct State {
    std::shared_ptr<Transport> transport;
    std::int64_t mine = 0;
    std::vector<std::int64_t> all{}, counts{};
    Pending operation{};
  };
  const auto size = static_cast<std::size_t>(transport_->size()), rank = static_cast<std::size_t>(transport_->rank());
  // Never freed if other ranks do not answer: waiting for the operation would hang, and its buffers are in use.
  auto* state = new State{transport_, static_cast<std::int64_t>(fingerprint({error}))};
  state->all.resize(size), state->counts.assign(size, 1);
  try {
    state->operation = transport_->start({.kind = CollectiveKind::allgather,
                                          .in = &state->mine,
                                          .out = state->all.data(),
                                          .type = DType::int64,
                                          .counts = state->counts});
    // Rank 0 may still write the state of a run.
    for (const auto start = steady_clock::now(); !state->operation.test(); std::this_thread::sleep_for(milliseconds(1)))
      if (steady_clock::now() - start > seconds(3)) return false;
    state->operation.wait();
  } catch (const std::exception&) {
    return false;
  }
  const auto all = state->all;
  delete state;
  const auto mine = all.begin() + static_cast<std::ptrdiff_t>(rank);
  const bool same = std::count(all.begin(), all.end(), all[0]) == static_cast<std::ptrdiff_t>(size);
  if (same && rank == 0) fmt::print(stderr, "{}\n", error);
  if (!same && std::find(all.begin(), mine, *mine) == mine) fmt::print(stderr, "[rank {} of {}] {}\n", rank, size, error);
  // Messages that are still under way after errors must not keep MPI from ending.
  std::thread([] {
    std::this_thread::sleep_for(seconds(10));
    std::_Exit(1);
  }).detach();
  return true;
}

}  // namespace mpigrad::tool

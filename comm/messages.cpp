#include "comm/messages.h"

#include <bit>

namespace mpigrad::detail {

std::shared_ptr<Messages::Receive> Messages::post() { return posted_.emplace_back(std::make_shared<Receive>()); }

void Messages::arrive(Receive& receive, Status status) {
  receive.status = status;
  receive.arrived = true;
  for (; !posted_.empty() && posted_.front()->arrived; posted_.pop_front()) {
    auto& first = *posted_.front();
    first.number = received_[{first.status.source, first.status.tag}]++;
  }
}

namespace {

int bits(const Transport& transport) { return (std::bit_width(static_cast<unsigned>(transport.max_tag())) - 1) / 2; }

}  // namespace

int recorded_tags(const Transport& transport) { return 1 << bits(transport); }

int identity_tag(const Transport& transport, int tag, std::int64_t number) {
  const int b = bits(transport);
  return static_cast<int>(number % (std::int64_t{1} << b)) << b | tag;
}

}  // namespace mpigrad::detail

#include "comm/messages/messages.h"

#include <algorithm>
#include <bit>
#include <set>

namespace mpigrad::detail {

std::shared_ptr<Messages::Numbered> Messages::send(int dest, int tag) {
  auto message = std::make_shared<Numbered>();
  auto& stream = sent_[{dest, tag}];
  message->peer = dest, message->tag = tag, message->number = stream.next++, message->stream = &stream;
  return message;
}

std::shared_ptr<Messages::Numbered> Messages::receive(int source, int tag) {
  auto message = std::make_shared<Numbered>();
  message->peer = source, message->tag = tag;
  unnumbered_.push_back(message);
  number_receives(0);
  return message;
}

void Messages::waited(Numbered& message, std::int64_t identities) {
  message.waited = waits_++;
  if (message.number >= 0) compare(message, identities);
  else number_receives(identities);
}

void Messages::number_receives(std::int64_t identities) {
  std::set<std::pair<int, int>> before;  // kinds of messages that receives without a number may take
  const auto takes = [](const std::pair<int, int>& kind, const Numbered& message) {
    return (kind.first == any_source || kind.first == message.peer) && (kind.second == any_tag || kind.second == message.tag);
  };
  for (auto at = unnumbered_.begin(); !lost_ && at != unnumbered_.end();) {
    auto& message = **at;
    const bool named = message.peer != any_source && message.tag != any_tag;
    if (!named || std::any_of(before.begin(), before.end(), [&](const auto& kind) { return takes(kind, message); })) {
      before.emplace(message.peer, message.tag);
      ++at;
      continue;
    }
    message.stream = &received_[{message.peer, message.tag}];
    message.number = message.stream->next++;
    if (message.waited >= 0) compare(message, identities);
    at = unnumbered_.erase(at);
  }
}

void Messages::compare(Numbered& message, std::int64_t identities) {
  auto& last = message.stream->last;
  const auto at = static_cast<std::size_t>(message.number % identities);
  if (last.size() <= at) last.resize(at + 1);
  message.ambiguous =
      message.number >= identities && (last[at].number != message.number - identities || last[at].waited > message.waited);
  last[at] = {message.number, message.waited};
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

#include "comm/messages/point_to_point.h"

#include <optional>

#include "comm/messages/messages.h"
#include "comm/messages/transfer.h"

namespace mpigrad {
namespace {

using detail::Messages;
using detail::Transfer;

// A message's identity, shared by the message, its adjoint and the adjoint's adjoint.
struct Identity {
  int peer = proc_null, tag = 0;
  std::int64_t number = -1;
};

void check_peer(std::string_view call, const Communicator& comm, int peer, bool any) {
  require((peer >= 0 && peer < comm.size()) || peer == proc_null || (any && peer == any_source),
          "[{}] peer {} is not one of {} ranks, nor proc_null{}", call, peer, comm.size(), any ? ", nor any_source" : "");
}

void check_tag(std::string_view call, const Communicator& comm, int tag, bool recorded, bool any) {
  if (any && tag == any_tag) return;
  const int most = recorded ? detail::recorded_tags(comm.side()) - 1 : comm.transport().max_tag();
  require(tag >= 0 && tag <= most, "[{}] tags are 0 to {}{}, got {}", call, most, recorded ? " under a tape" : "", tag);
}

void check_plain(std::string_view call, const Tensor& x) { detail::refuse_layout(call, std::span(&x, 1)); }

Request receive_adjoint(const TensorType& type, const Communicator& comm, const Identity& identity, DeviceKind device);

// The identity for a message's adjoint. Error: there is none on which both ranks agree.
Identity identity_of(std::string_view call, const Communicator& comm, const Messages::Numbered& message) {
  const int most = recorded_tags(comm);
  require(message.number >= 0, "[{}] a receive posted before this one was never waited for: rank {}, tag {}", call, message.peer,
          message.tag);
  require(message.tag < most, "[{}] tags are 0 to {} under a tape; a message with tag {} has arrived", call, most - 1,
          message.tag);
  require(!message.ambiguous,
          "[{}] message {} with rank {} and tag {} was waited for before message {}: it has the same identity", call,
          message.number, message.peer, message.tag, message.number - most);
  return {message.peer, message.tag, message.number};
}

// Sends x by `transport` with `tag`. The adjoint arrives under the message's identity; `message` is null for adjoints.
Request post_send(const Tensor& x, const Communicator& comm, Transport& transport, int tag, const Identity& identity,
                  std::string what, const std::shared_ptr<Messages::Numbered>& message = {}) {
  auto transfer = std::make_shared<Transfer>();
  transfer->name = "isend";
  transfer->what = std::move(what);
  transfer->x = x;
  if (identity.peer != proc_null && comm.moves(x)) {
    const Message sent{identity.peer, tag, x.raw(), x.elements()};
    transfer->operation = transport.start_exchange(std::span(&sent, 1), {}, x.dtype());
  }
  if (message)
    transfer->arrive = [messages = comm.shared_messages(), message, identities = recorded_tags(comm)](const Pending&) {
      messages->waited(*message, identities);
      return Status();
    };
  transfer->start_adjoint = [comm, identity, message, type = x.type(), device = x.device()](const Tensor&) {
    return receive_adjoint(type, comm, message ? identity_of("isend", comm, *message) : identity, device);
  };
  return detail::start(std::move(transfer), x, true);
}

int adjoint_tag(const Communicator& comm, const Identity& identity) {
  return detail::identity_tag(comm.side(), identity.tag, identity.number);
}

Request send_adjoint(const Tensor& x, const Communicator& comm, const Identity& identity) {
  return post_send(x, comm, comm.side(x.device()), adjoint_tag(comm, identity), identity,
                   fmt::format("adjoint message to rank {}, tag {}", identity.peer, identity.tag));
}

// The buffer for a received message: uninitialised memory, or zeros if no message comes.
Tensor receive_buffer(const TensorType& type, DeviceKind device, int peer) {
  if (peer != proc_null) return Tensor(type, device);
  UseDevice use(device);
  return zeros(type.shape, type.dtype);
}

Request receive_adjoint(const TensorType& type, const Communicator& comm, const Identity& identity, DeviceKind device) {
  auto transfer = std::make_shared<Transfer>();
  transfer->name = "irecv";
  transfer->what = fmt::format("adjoint message from rank {}, tag {}", identity.peer, identity.tag);
  transfer->y = receive_buffer(type, device, identity.peer);
  if (identity.peer != proc_null && comm.moves(transfer->y)) {
    const Message message{identity.peer, adjoint_tag(comm, identity), transfer->y.raw(), transfer->y.elements()};
    transfer->operation = comm.side(device).start_receive(message, type.dtype);
  }
  transfer->start_adjoint = [comm, identity](const Tensor& ybar) { return send_adjoint(ybar, comm, identity); };
  return detail::start(std::move(transfer), {}, true);
}

}  // namespace

int recorded_tags(const Communicator& comm) { return detail::recorded_tags(comm.side()); }

Request isend(const Tensor& x, const Communicator& comm, int dest, int tag) {
  check_plain("isend", x);
  check_peer("isend", comm, dest, false);
  check_tag("isend", comm, tag, detail::is_recorded(x, true), false);
  const auto message = dest == proc_null ? nullptr : comm.messages().send(dest, tag);
  return post_send(x, comm, comm.transport(x.device()), tag, {dest, tag},
                   fmt::format("isend to rank {}, tag {}: {}", dest, tag, to_string(x)), message);
}

Request irecv(const TensorType& type, const Communicator& comm, int source, int tag) {
  auto transfer = std::make_shared<Transfer>();
  transfer->name = "irecv";
  transfer->what = fmt::format("irecv from rank {}, tag {}: {} {}", source, tag, name_of(type.dtype), to_string(type.shape));
  check_peer("irecv", comm, source, true);
  auto y = receive_buffer(type, current_device(), source);
  check_tag("irecv", comm, tag, detail::is_recorded(y, true), true);
  transfer->y = y;
  if (source == proc_null) {
    transfer->start_adjoint = [comm](const Tensor& ybar) { return send_adjoint(ybar, comm, {}); };
    return detail::start(std::move(transfer), {}, true);
  }
  const bool real = comm.moves(y);
  require(real || (source != any_source && tag != any_tag), "[irecv] on the dry device the source and the tag must be named");
  if (real) {
    const Message message{source, tag, y.raw(), y.elements()};
    transfer->operation = comm.transport(y.device()).start_receive(message, type.dtype);
  }
  const auto messages = comm.shared_messages();
  const auto message = messages->receive(source, tag);
  transfer->arrive = [messages, message, identities = recorded_tags(comm)](const Pending& operation) {
    const Status status = operation ? operation.status() : Status{message->peer, message->tag};
    message->peer = status.source, message->tag = status.tag;
    messages->waited(*message, identities);
    return status;
  };
  transfer->lose = [messages] { messages->lose(); };
  transfer->start_adjoint = [comm, message](const Tensor& ybar) {
    return send_adjoint(ybar, comm, identity_of("irecv", comm, *message));
  };
  return detail::start(std::move(transfer), {}, true);
}

void send(const Tensor& x, const Communicator& comm, int dest, int tag) { wait(isend(x, comm, dest, tag)); }

Tensor recv(const TensorType& type, const Communicator& comm, int source, int tag, Status* status) {
  return wait(irecv(type, comm, source, tag), status);
}

Tensor sendrecv(const Tensor& x, const Communicator& comm, const SendRecvAttributes& a) {
  check_plain("sendrecv", x);
  for (const int peer : {a.dest, a.source}) check_peer("sendrecv", comm, peer, false);
  require(a.receive_rows < 0 || x.rank() >= 1, "[sendrecv] a scalar has no rows: {}", x);
  TensorType type = x.type();
  if (a.receive_rows >= 0) type.shape[0] = a.receive_rows;
  std::optional<Untaped> scope;
  if (x.is_constant()) scope.emplace();
  const bool recorded = detail::is_recorded(x, false);
  check_tag("sendrecv", comm, a.send_tag, recorded, false);
  check_tag("sendrecv", comm, a.receive_tag, recorded, true);
  UseDevice device(x.device());
  auto receive = irecv(type, comm, a.source, a.receive_tag);
  auto sent = isend(x, comm, a.dest, a.send_tag);
  const auto y = wait(receive);
  wait(sent);
  return x.is_constant() ? constant(y) : y;
}

Tensor sendrecv_replace(const Tensor& x, const Communicator& comm, int dest, int source, int send_tag, int receive_tag) {
  return sendrecv(x, comm, {.dest = dest, .source = source, .send_tag = send_tag, .receive_tag = receive_tag});
}

Tensor shift(const Tensor& x, const Communicator& comm, int by) {
  const int p = comm.size(), step = ((by % p) + p) % p;
  return sendrecv(x, comm, {.dest = (comm.rank() + step) % p, .source = (comm.rank() + p - step) % p});
}

PersistentSend send_init(const Communicator& comm, int dest, int tag) {
  check_peer("send_init", comm, dest, false);
  return {comm, dest, tag};
}
PersistentReceive recv_init(const TensorType& type, const Communicator& comm, int source, int tag) {
  check_peer("recv_init", comm, source, true);
  return {type, comm, source, tag};
}

}  // namespace mpigrad

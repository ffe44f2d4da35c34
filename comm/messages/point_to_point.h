#pragma once
// Differentiable point-to-point messages. The cotangent of a received value travels back to its sender. Ranks need not order
// anything for this, even where the value is not used, where a rank has no loss, or where two ranks wait in different orders.
//
// Every rank with a tape records floating-point messages, even if the tensor sent is constant: the receiver cannot know that.
// Both ends of a message must be under a tape, or neither (Untaped). Integers and booleans are not recorded. Under a tape tags
// must be below recorded_tags(), 8192 with MPICH. Peers may be proc_null: nothing is sent, zeros arrive, and there is no
// cotangent.

#include "comm/communicator.h"
#include "comm/messages/request.h"

namespace mpigrad {

// y on dest = x;  xbar = the receiver's ybar
void send(const Tensor& x, const Communicator& comm, int dest, int tag = 0);
Request isend(const Tensor& x, const Communicator& comm, int dest, int tag = 0);

// Receives a message, which must have `type`. source may be any_source, tag any_tag; `status` returns the actual ones.
Tensor recv(const TensorType& type, const Communicator& comm, int source, int tag = 0, Status* status = nullptr);
Request irecv(const TensorType& type, const Communicator& comm, int source, int tag = 0);

// Sends x to `dest`, receives from `source`; the adjoint swaps peers and tags. A constant x must be constant on all ranks, as for
// collectives.
struct SendRecvAttributes {
  int dest = proc_null, source = proc_null;
  int send_tag = 0, receive_tag = 0;
  std::int64_t receive_rows = -1;  // of the received tensor; -1: as many as x has
};
Tensor sendrecv(const Tensor& x, const Communicator& comm, const SendRecvAttributes& attributes);
// MPI's Sendrecv_replace, for values: the result has the shape of x.
Tensor sendrecv_replace(const Tensor& x, const Communicator& comm, int dest, int source, int send_tag = 0, int receive_tag = 0);
// y_r = x_{r - by}, periodic.
Tensor shift(const Tensor& x, const Communicator& comm, int by = 1);

// Persistent requests: peer and tag are given once. Each start() is an isend or irecv, whose request is waited for as usual.
class PersistentSend {
 public:
  Request start(const Tensor& x) const { return isend(x, comm_, dest_, tag_); }

 private:
  friend PersistentSend send_init(const Communicator& comm, int dest, int tag);
  PersistentSend(const Communicator& comm, int dest, int tag) : comm_(comm), dest_(dest), tag_(tag) {}
  Communicator comm_;
  int dest_, tag_;
};
class PersistentReceive {
 public:
  Request start() const { return irecv(type_, comm_, source_, tag_); }

 private:
  friend PersistentReceive recv_init(const TensorType& type, const Communicator& comm, int source, int tag);
  PersistentReceive(const TensorType& type, const Communicator& comm, int source, int tag)
      : type_(type), comm_(comm), source_(source), tag_(tag) {}
  TensorType type_;
  Communicator comm_;
  int source_, tag_;
};
// Persistent requests for messages to `dest`, and for messages of `type` from `source`. They send nothing before start(). Error:
// a peer that is neither a rank of `comm` nor proc_null; the source may also be any_source. start() checks the tag.
PersistentSend send_init(const Communicator& comm, int dest, int tag = 0);
PersistentReceive recv_init(const TensorType& type, const Communicator& comm, int source, int tag = 0);

// Recorded messages may have the tags 0 to recorded_tags(comm) - 1.
int recorded_tags(const Communicator& comm);

}  // namespace mpigrad

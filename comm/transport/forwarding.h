#pragma once
// A transport that hands every call on to another one; what watches or changes calls derives from it. Used inside comm only.

#include <utility>

#include "comm/transport/transport.h"

namespace mpigrad {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int node_rank() const override { return inner_->node_rank(); }
  int node_size() const override { return inner_->node_size(); }
  int max_tag() const override { return inner_->max_tag(); }
  bool any_thread() const override { return inner_->any_thread(); }
  const Transport& underlying() const override { return inner_->underlying(); }
  void abort(int code) override { inner_->abort(code); }
  void require_same(std::string_view what, const HostBytes& data) override { inner_->require_same(what, data); }
  bool loses_nan() const override { return inner_->loses_nan(); }
  bool capturable() override { return inner_->capturable(); }
  std::shared_ptr<Transport> control() override { return inner_->control(); }

  void barrier() override { inner_->barrier(); }
  void broadcast(void* data, std::int64_t count, DType type, int root) override { inner_->broadcast(data, count, type, root); }
  void allreduce(const void* in, void* out, std::int64_t count, DType type, Reduction op) override {
    inner_->allreduce(in, out, count, type, op);
  }
  void reduce(const void* in, void* out, std::int64_t count, DType type, Reduction op, int root) override {
    inner_->reduce(in, out, count, type, op, root);
  }
  void gather(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    inner_->gather(in, out, counts, type, root);
  }
  void scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    inner_->scatter(in, out, counts, type, root);
  }
  void allgather(const void* in, void* out, std::span<const std::int64_t> counts, DType type) override {
    inner_->allgather(in, out, counts, type);
  }
  void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, Reduction op) override {
    inner_->reduce_scatter(in, out, counts, type, op);
  }
  void alltoall(const void* in, std::span<const std::int64_t> send_counts, void* out,
                std::span<const std::int64_t> receive_counts, DType type) override {
    inner_->alltoall(in, send_counts, out, receive_counts, type);
  }
  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    inner_->exchange(sends, receives, type);
  }
  std::unique_ptr<PendingOperation> start_exchange(std::span<const Message> sends, std::span<const Message> receives,
                                                   DType type) override {
    return inner_->start_exchange(sends, receives, type);
  }
  std::unique_ptr<PendingOperation> start_round(std::span<const Message> sends, std::span<const Message> receives,
                                                DType type) override {
    return inner_->start_round(sends, receives, type);
  }
  std::unique_ptr<PendingReceive> start_receive(const Message& message, DType type) override {
    return inner_->start_receive(message, type);
  }
  std::unique_ptr<PendingOperation> start(const Collective& call) override { return inner_->start(call); }

  Transport& inner() const { return *inner_; }

 private:
  std::shared_ptr<Transport> inner_;
};

}  // namespace mpigrad

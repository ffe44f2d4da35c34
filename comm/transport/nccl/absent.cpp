// Built without NCCL.

#include "comm/transport/transport.h"
#include "framework/base/error.h"

namespace mpigrad {

bool nccl_available() { return false; }
std::string nccl_gpu() { return {}; }
std::shared_ptr<Transport> nccl_transport(std::shared_ptr<Transport>, Lane) {
  fail("[nccl] this build has no NCCL: install libnccl-dev and configure with -Dnccl=enabled");
}

}  // namespace mpigrad

#pragma once
// A transport that watches another one; see checks.h. Used inside comm only.

#include <memory>

#include "comm/transport/watch/checks.h"

namespace mpigrad::detail {

std::shared_ptr<Transport> watched_transport(std::shared_ptr<Transport> inner, const CheckOptions& options);
// The value of the check `same` with which a transport is watched, even if it is wrapped by others; 0 if it is not watched.
int same_every(const Transport& transport);

}  // namespace mpigrad::detail

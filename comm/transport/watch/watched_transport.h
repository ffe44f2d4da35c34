#pragma once
// A transport that watches another one; see checks.h. Used inside comm only.

#include <memory>

#include "comm/transport/watch/checks.h"

namespace mpigrad::detail {

std::shared_ptr<Transport> watched_transport(std::shared_ptr<Transport> inner, const CheckOptions& options);
// `same` of the options with which a transport is watched, also behind others; 0 if it is not.
int same_every(const Transport& transport);

}  // namespace mpigrad::detail

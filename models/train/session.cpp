#include "models/train/session.h"

#include "comm/launch.h"

namespace mpigrad {

void Session::log(const std::string& name, double value) const {
  if (rank() == 0) fmt::print("{} {:.6g}\n", name, value);
}

int detail::run_on_ranks(int argc, char** argv, const std::function<int(Session&)>& body) {
  return launch(argc, argv, [&](std::shared_ptr<Transport> world) {
    Session session(std::move(world));
    return body(session);
  });
}

}  // namespace mpigrad

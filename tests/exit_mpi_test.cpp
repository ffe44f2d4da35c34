// Ranks that end before others: run as `mpiexec -n 2 exit_mpi_test KIND`; tests/run.sh tells what must come of it.
//
//   return   rank 1's body returns 7 while rank 0 waits for it
//   exit     rank 1 calls std::exit(3) meanwhile
//   throw    rank 1 throws
//   late     all end with 0, rank 1 a second after the others

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "comm/launch.h"

using namespace mpigrad;

int main(int argc, char** argv) {
  return launch(argc, argv, [&](std::shared_ptr<Transport> world) {
    const std::string kind = argc > 1 ? argv[1] : "";
    if (world->rank() == 1) {
      if (kind == "return") return 7;
      if (kind == "exit") std::exit(3);
      if (kind == "throw") fail("[test] this rank fails");
      if (kind == "late") std::this_thread::sleep_for(std::chrono::seconds(1));
    } else if (kind != "late") {
      world->barrier();
    }
    return 0;
  });
}

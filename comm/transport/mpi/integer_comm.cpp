#include "comm/transport/mpi/integer_comm.h"

#include <vector>

#include "comm/transport/mpi/call.h"
#include "comm/transport/mpi/mpi_comm.h"

namespace mpigrad {
namespace {

MPI_Comm communicator_of(int integer) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  require(initialized && !mpi::finalized(), "[mpi_transport] MPI must be initialised and not yet finalised");
#ifdef MPI_ABI_VERSION
  return MPI_Comm_fromint(integer);
#else
  return MPI_Comm_f2c(static_cast<MPI_Fint>(integer));
#endif
}

struct Cartesian {
  std::vector<int> extents, coordinates;  // none: no Cartesian topology
};

Cartesian topology_of(MPI_Comm communicator) {
  Cartesian t;
  int kind = MPI_UNDEFINED, dimensions = 0;
  mpi::check(MPI_Topo_test(communicator, &kind), "topology");
  if (kind != MPI_CART) return t;
  mpi::check(MPI_Cartdim_get(communicator, &dimensions), "topology");
  const auto n = static_cast<std::size_t>(dimensions);
  std::vector<int> periodic(n);
  t.extents.resize(n), t.coordinates.resize(n);
  mpi::check(MPI_Cart_get(communicator, dimensions, t.extents.data(), periodic.data(), t.coordinates.data()), "topology");
  return t;
}

}  // namespace

std::shared_ptr<Transport> mpi_transport_of_integer(int communicator) { return mpi_transport(communicator_of(communicator)); }

std::shared_ptr<Transport> mpi_transport_of_cartesian(int communicator, bool reversed) {
  const MPI_Comm given = communicator_of(communicator);
  require(given != MPI_COMM_NULL, "[mpi_transport] the communicator is MPI_COMM_NULL");
  auto t = topology_of(given);
  require(!t.extents.empty(), "[mpi_transport] the communicator has no Cartesian topology: MPI_Cart_create makes one");
  int number = 0;
  for (std::size_t i = 0; i < t.extents.size(); ++i) {
    const auto d = reversed ? t.extents.size() - 1 - i : i;
    number = number * t.extents[d] + t.coordinates[d];
  }
  MPI_Comm ordered = MPI_COMM_NULL;
  mpi::check(MPI_Comm_split(given, 0, number, &ordered), "mpi_transport");
  auto made = mpi_transport(ordered);
  MPI_Comm_free(&ordered);
  return made;
}

int cartesian_dimensions(const Transport& transport) {
  if (transport.underlying().name() != std::string_view("mpi")) return 0;
  int count = 0;
  for (const int extent : topology_of(mpi_communicator(transport)).extents) count += extent > 1 ? 1 : 0;
  return count;
}

}  // namespace mpigrad

#include "comm/mpi/call.h"

#include <string>

namespace mpigrad::mpi {

void check(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  fail("[{}] MPI: {}", call, length > 0 ? std::string(text, static_cast<std::size_t>(length)) : fmt::format("error {}", code));
}

MPI_Datatype type_of(DType type) {
  switch (type) {
    case DType::float32: return MPI_FLOAT;
    case DType::float64: return MPI_DOUBLE;
    case DType::int64: return MPI_INT64_T;
    case DType::int32: return MPI_INT32_T;
    case DType::int16: return MPI_INT16_T;
    case DType::uint8: return MPI_UINT8_T;
    case DType::boolean: return MPI_UINT8_T;  // 0 or 1: max is or, min is and
  }
  fail("[mpi] unknown element type {}", static_cast<int>(type));
}

MPI_Op op_of(Reduction op) {
  switch (op) {
    case Reduction::sum: return MPI_SUM;
    case Reduction::max: return MPI_MAX;
    case Reduction::min: return MPI_MIN;
    case Reduction::prod: return MPI_PROD;
  }
  fail("[mpi] unknown reduction {}", static_cast<int>(op));
}

}  // namespace mpigrad::mpi

#include "comm/transport/mpi/call.h"

#include <sched.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "comm/transport/combine.h"
#include "comm/transport/launcher.h"

namespace mpigrad::mpi {
namespace {

// 16-bit floating-point types for MPI, made of two bytes and functions of our own: MPI has no bfloat16, and MPICH ends the
// program in a sum of its 16-bit float. Created at the first use. MPI_Finalize frees them, even if the program calls it, because
// it begins by deleting the attributes of MPI_COMM_SELF.
template <class T>
struct HalfInMpi {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op sum = MPI_OP_NULL, max = MPI_OP_NULL, min = MPI_OP_NULL, prod = MPI_OP_NULL;

  static const HalfInMpi& get() {
    static HalfInMpi made;
    return made;
  }

 private:
  template <CombineOp op>
  static void step(void* in, void* accumulator, Count* count, MPI_Datatype*) {
    combine(static_cast<T*>(accumulator), static_cast<const T*>(in), static_cast<std::int64_t>(*count), op);
  }

  HalfInMpi() {
    check(MPI_Type_contiguous(sizeof(T), MPI_BYTE, &type), "mpi");
    check(MPI_Type_commit(&type), "mpi");
    constexpr int commutes = 1;
    check(MPIGRAD_MPI(MPI_Op_create)(step<CombineOp::sum>, commutes, &sum), "mpi");
    check(MPIGRAD_MPI(MPI_Op_create)(step<CombineOp::max>, commutes, &max), "mpi");
    check(MPIGRAD_MPI(MPI_Op_create)(step<CombineOp::min>, commutes, &min), "mpi");
    check(MPIGRAD_MPI(MPI_Op_create)(step<CombineOp::prod>, commutes, &prod), "mpi");
    int key = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, release, &key, nullptr), "mpi");
    check(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "mpi");
    check(MPI_Comm_free_keyval(&key), "mpi");
  }

  static int release(MPI_Comm, int, void* made, void*) {
    auto* ours = static_cast<HalfInMpi*>(made);
    MPI_Type_free(&ours->type);
    for (MPI_Op* op : {&ours->sum, &ours->max, &ours->min, &ours->prod}) MPI_Op_free(op);
    return MPI_SUCCESS;
  }
};

template <class T>
MPI_Op half_op(CombineOp op) {
  const auto& ours = HalfInMpi<T>::get();
  switch (op) {
    case CombineOp::sum: return ours.sum;
    case CombineOp::max: return ours.max;
    case CombineOp::min: return ours.min;
    case CombineOp::prod: return ours.prod;
    case CombineOp::band:
    case CombineOp::bor:
    case CombineOp::bxor: break;
  }
  fail("[mpi] unknown reduction {}", static_cast<int>(op));
}

void only_returns(MPI_Comm*, int*, ...) {}

}  // namespace

MPI_Errhandler errors_return() {
  static const MPI_Errhandler handler = [] {
    MPI_Errhandler made = MPI_ERRORS_RETURN;
    if (mpi_library() == "Intel MPI") check(MPI_Comm_create_errhandler(only_returns, &made), "mpi");
    return made;
  }();
  return handler;
}

bool finalized() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

void check(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  fail("[{}] MPI: {}", call, length > 0 ? std::string(text, static_cast<std::size_t>(length)) : fmt::format("error {}", code));
}

int wait(MPI_Request& request, MPI_Status& status, std::int64_t bytes) {
  using namespace std::chrono;
  constexpr microseconds patience(20000), slice(1000);
  int code = MPI_SUCCESS, done = 0;
  const auto looked = [&] { return (code = MPI_Test(&request, &done, &status)) != MPI_SUCCESS || done; };
  // Polls for about a microsecond, so that messages that have arrived, or nearly so, cause no yield.
  for (int i = 0; i < 20; ++i)
    if (looked()) return code;
  // Polling also moves messages, which no other thread does: at 0.5 GB/s or more they have arrived by then.
  const auto moving = steady_clock::now() + microseconds(bytes / 500);
  bool taken = false;  // true if others took the core while this rank yielded
  for (;;) {
    if (looked()) return code;
    const auto now = steady_clock::now();
    if (now > moving + patience || (taken && now > moving)) {
      // After such a wait a hundredth of it more is not noticeable, and other processes have the core to themselves. If this rank
      // sleeps, both it and a process that computes on the core get the core back sooner: with yielding, they take turns for
      // whole time slices.
      std::this_thread::sleep_for(patience / 100);
    } else {
      sched_yield();
      taken = taken || steady_clock::now() - now > slice;
    }
  }
}

void end_process_in(int seconds, int code, std::string line) {
  try {
    std::thread([seconds, code, line = std::move(line)] {
      std::this_thread::sleep_for(std::chrono::seconds(seconds));
      std::fwrite(line.data(), 1, line.size(), stderr);
      std::cout.flush();
      std::fflush(nullptr);
      std::_Exit(code);
    }).detach();
  } catch (const std::system_error&) {  // no more threads: the time limit is left out
  }
}

void abort_job(int code) {
  std::fflush(nullptr);
  end_process_in(5, code);
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

MPI_Datatype type_of(DType type) {
  switch (type) {
    case DType::float32: return MPI_FLOAT;
    case DType::float64: return MPI_DOUBLE;
    case DType::int64: return MPI_INT64_T;
    case DType::int32: return MPI_INT32_T;
    case DType::int16: return MPI_INT16_T;
    case DType::uint16: return MPI_UINT16_T;  // moved only
    case DType::uint8: return MPI_UINT8_T;
    case DType::boolean: return MPI_UINT8_T;  // 0 or 1: max is or, min is and
    case DType::bfloat16: return HalfInMpi<BFloat16>::get().type;
    case DType::float16: return HalfInMpi<Float16>::get().type;
    case DType::complex64: return MPI_C_FLOAT_COMPLEX;
    case DType::complex128: return MPI_C_DOUBLE_COMPLEX;
  }
  fail("[mpi] unknown element type {}", static_cast<int>(type));
}

MPI_Op op_of(CombineOp op, DType type) {
  if (type == DType::bfloat16) return half_op<BFloat16>(op);
  if (type == DType::float16) return half_op<Float16>(op);
  switch (op) {
    case CombineOp::sum: return MPI_SUM;
    case CombineOp::max: return MPI_MAX;
    case CombineOp::min: return MPI_MIN;
    case CombineOp::prod: return MPI_PROD;
    case CombineOp::band: return MPI_BAND;
    case CombineOp::bor: return MPI_BOR;
    case CombineOp::bxor: return MPI_BXOR;
  }
  fail("[mpi] unknown reduction {}", static_cast<int>(op));
}

}  // namespace mpigrad::mpi

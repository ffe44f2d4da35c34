#include <exception>
#include <new>

#include "comm/process/problem.h"
#include "models/c/functions.h"

namespace mpigrad::capi {
namespace {

thread_local std::string last_error;
thread_local std::uint64_t failed_calls = 0;

mpigrad_status failed(mpigrad_status status, const char* text) noexcept {
  ++failed_calls;
  try {
    last_error = text;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

}  // namespace

mpigrad_status status_of_exception(const char* function) noexcept {
  try {
    throw;
  } catch (const Refusal& refusal) {
    return failed(refusal.status, refusal.what());
  } catch (const std::bad_alloc&) {
    return failed(MPIGRAD_OUT_OF_MEMORY, "there is not enough memory");
  } catch (const Error& error) {
    return failed(MPIGRAD_ERROR, error.what());
  } catch (const std::exception& error) {
    try {
      return failed(MPIGRAD_ERROR, fmt::format("[{}] {}", function, problem_of(error)).c_str());
    } catch (...) {
      return failed(MPIGRAD_ERROR, error.what());
    }
  } catch (...) {
    return failed(MPIGRAD_ERROR, "an exception of a type that this library does not know");
  }
}

std::uint64_t failures() { return failed_calls; }
const std::string& last_reason() { return last_error; }

void Call::refuse_null(const char* argument) const {
  refuse(MPIGRAD_INVALID_ARGUMENT, "[{}] {} is a null pointer", function_, argument);
}

void Call::refuse_constant(int value, int count, const char* argument) const {
  refuse(MPIGRAD_INVALID_ARGUMENT, "[{}] {} is one of the constants 0 to {}, not {}", function_, argument, count - 1, value);
}

void Call::require_list(int count, const void* list, const char* argument) const {
  if (count < 0) refuse(MPIGRAD_INVALID_ARGUMENT, "[{}] the length of {} is negative: {}", function_, argument, count);
  if (count > 0 && !list) refuse_null(argument);
}

Tensors Call::tensors(int count, const mpigrad_tensor* list, const char* argument) const {
  require_list(count, list, argument);
  Tensors result;
  for (int i = 0; i < count; ++i) result.push_back(tensor(list[i], fmt::format("{}[{}]", argument, i).c_str()));
  return result;
}

std::vector<std::uint64_t> Call::raw(int count, const mpigrad_tensor* list, const char* argument) const {
  require_list(count, list, argument);
  std::vector<std::uint64_t> result;
  for (int i = 0; i < count; ++i) result.push_back(list[i].value);
  return result;
}

std::vector<std::string> Call::strings(int count, const char* const* list, const char* argument) const {
  require_list(count, list, argument);
  std::vector<std::string> result;
  for (int i = 0; i < count; ++i) result.emplace_back(there(list[i], argument));
  return result;
}

void Call::give(mpigrad_tensor* result, const Tensor& x) const {
  result->value = x ? enter(Kind::tensor, std::make_shared<Tensor>(x)) : 0;
}

void Call::give(mpigrad_tensor* results, int count, const Tensors& x) const {
  if (static_cast<std::size_t>(count) != x.size())
    refuse(MPIGRAD_INVALID_ARGUMENT, "[{}] there are {} results, and places for {}", function_, x.size(), count);
  for (int i = 0; i < count; ++i) give(results + i, x[static_cast<std::size_t>(i)]);
}

void Call::give(std::int64_t* results, int, const Shape& shape) const { std::copy(shape.begin(), shape.end(), results); }

}  // namespace mpigrad::capi

extern "C" {

const char* mpigrad_last_error(void) { return mpigrad::capi::last_reason().c_str(); }

mpigrad_status mpigrad_fail(mpigrad_status status, const char* reason) {
  return mpigrad::capi::failed(status, reason ? reason : "");
}

const char* mpigrad_status_name(mpigrad_status status) {
  switch (status) {
    case MPIGRAD_OK: return "success";
    case MPIGRAD_ERROR: return "error";
    case MPIGRAD_INVALID_ARGUMENT: return "invalid argument";
    case MPIGRAD_INVALID_HANDLE: return "invalid handle";
    case MPIGRAD_WRONG_KIND: return "wrong kind of handle";
    case MPIGRAD_WRONG_THREAD: return "handle of another thread";
    case MPIGRAD_CALLBACK_FAILED: return "function of the program failed";
    case MPIGRAD_CHECK_FAILED: return "wrong derivative";
    case MPIGRAD_OUT_OF_MEMORY: return "out of memory";
  }
  return "unknown status";
}

}  // extern "C"

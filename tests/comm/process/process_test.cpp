// Messages of a process about its launcher, about exceptions that end it, and about failed allocations.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "comm/process/problem.h"
#include "comm/transport/launcher.h"
#include "framework/tensor/tensor.h"
#include "models/data/sources/function.h"
#include "models/evaluate/sliding_window.h"
#include "models/nn/layers.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using mpigrad::testing::error_text;
using mpigrad::testing::has;

namespace {

constexpr std::int64_t many = 1 << 22;

// Scores of many classes in one cell.
struct ManyClasses : nn::Module {
  Tensor operator()(const Tensor&) override { return zeros({1, 1, 1, 1, many}, DType::float32); }
};

}  // namespace

TEST_CASE("process: a launcher whose processes are worlds of their own is named, with both numbers and a command") {
  CHECK(copies_problem({}, 1).empty());
  CHECK(copies_problem({"mpiexec", 1, 0}, 1).empty());
  CHECK(copies_problem({"mpiexec", 4, 0}, 4).empty());
  CHECK(copies_problem({"srun", 4, 0}, 2).empty());  // MPI knows some launcher, and its number is the right one
  const auto text = copies_problem({"srun", 4, 2}, 1);
  CHECK(text.starts_with("[launch] srun started 4 processes, but "));
  CHECK(has(text, " finds 1 rank in each"));
  CHECK(has(text, " -n 4"));
  CHECK(copies_problem({"mpiexec", 4, 0}, 1) != copies_problem({"srun", 4, 0}, 1));  // suggests another launcher
}

TEST_CASE("process: MPICH without PMIx does not find the ranks of launchers that speak it") {
  constexpr std::string_view mpich = "MPICH Version:      5.0.2\nMPICH configure:    --with-device=ch4:ucx,ofi --with-pm=hydra";
  CHECK(lacks_pmix({"srun --mpi=pmix", 2, 0}, mpich));
  CHECK(lacks_pmix({"mpirun of Open MPI", 2, 0}, mpich));
  CHECK_FALSE(lacks_pmix({"srun", 2, 0}, mpich));
  CHECK_FALSE(lacks_pmix({"mpiexec", 2, 0}, mpich));
  CHECK_FALSE(lacks_pmix({"srun --mpi=pmix", 2, 0}, "MPICH Version:      4.2.0\nMPICH configure:   --with-pmix=/usr"));
  CHECK_FALSE(lacks_pmix({"srun --mpi=pmix", 2, 0}, "MPICH Version:      5.0.2\nMPICH configure:   --with-pmi=pmix"));
  CHECK_FALSE(lacks_pmix({"srun --mpi=pmix", 2, 0}, "MPI VERSION    : CRAY MPICH version 8.1.28.16 (ANL base 3.4a2)"));
  CHECK(lacks_pmix({"srun", 2, 0}, "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"));
  CHECK_FALSE(lacks_pmix({"mpirun of Open MPI", 2, 0}, "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"));
}

TEST_CASE("process: the variables of launchers tell their name, their processes and the rank") {
  using Variables = std::map<std::string, std::string>;
  const auto told = [](const Variables& set) {
    const auto launcher = launcher_of([&](const char* name) -> std::optional<std::string> {
      const auto found = set.find(name);
      return found == set.end() ? std::nullopt : std::optional(found->second);
    });
    return fmt::format("{}/{}/{}", launcher.name, launcher.processes, launcher.rank);
  };
  const auto with = [](Variables set, const Variables& more) {
    set.insert(more.begin(), more.end());
    return set;
  };
  const Variables batch{{"SLURM_JOB_ID", "5"}, {"SLURM_NTASKS", "4"}};
  const auto step = with(batch, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}});
  CHECK(told({}) == "/0/0");
  CHECK(told(batch) == "/0/0");  // the shell of salloc or sbatch
  CHECK(told(step) == "srun/4/3");
  CHECK(told(with(step, {{"SLURM_PTY_PORT", "9"}, {"SLURM_TASK_PID", "1"}})) == "/0/0");  // typed in a terminal of srun
  CHECK(told(with(step, {{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}})) == "srun with PMI/4/3");
  CHECK(told(with(step, {{"PMIX_NAMESPACE", "slurm.pmix.5.0"}, {"PMIX_RANK", "3"}})) == "srun --mpi=pmix/4/3");
  CHECK(told(with(batch, {{"MPI_LOCALNRANKS", "2"}, {"PMI_SIZE", "2"}, {"PMI_RANK", "1"}})) == "mpiexec/2/1");
  CHECK(told({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"PMIX_RANK", "1"}}) == "mpirun of Open MPI/2/1");
}

TEST_CASE("process: the type of srun --mpi follows from the MPI library's text") {
  CHECK(slurm_mpi_type("MPICH Version:\t4.0.2\nMPICH configure:\t--with-slurm=/usr --with-pm=hydra") == "pmi2");
  CHECK(slurm_mpi_type("MPICH Version:      4.2.0\nMPICH configure:   --with-pmix=/usr") == "pmix");
  CHECK(slurm_mpi_type("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4") == "pmix");
  CHECK(slurm_mpi_type("Intel(R) MPI Library 2021.19 for Linux* OS") == "pmi2");
  CHECK(slurm_mpi_type("MPI VERSION    : CRAY MPICH version 8.1.28.16 (ANL base 3.4a2)") == "");
  CHECK(slurm_mpi_type("") == "");
  CHECK(mpi_library_of("MPICH Version:\t4.0.2") == "MPICH");
  CHECK(mpi_library_of("MPI VERSION    : CRAY MPICH version 8.1.28.16 (ANL base 3.4a2)") == "MPICH");
  CHECK(mpi_library_of("Intel(R) MPI Library 2021.19 for Linux* OS") == "Intel MPI");
  CHECK(mpi_library_of("Open MPI v5.0.11, package: Open MPI, ident: 5.0.11") == "Open MPI");
  CHECK(mpi_library_of("MVAPICH2 Version      :\t2.3.7") == "MPICH");
  CHECK(mpi_library_of("") == "");
}

TEST_CASE("process: exceptions of libraries are told with their kind") {
  CHECK(problem_of(Error("[op] a rule")) == "[op] a rule");
  CHECK(problem_of(std::length_error("vector::_M_default_append")) == "[std::length_error] vector::_M_default_append");
  CHECK(problem_of(std::bad_array_new_length()) == "[std::bad_array_new_length] std::bad_array_new_length");
  CHECK(problem_of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)))
            .starts_with("[system] no thread can be made: "));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their `new` does not call the handler
TEST_CASE("process: memory that is not there is told with what is") {
  name_memory_errors();
  std::string text;
  try {
    ::operator delete(::operator new (std::size_t{1} << 60));
  } catch (const std::bad_alloc& error) {
    text = problem_of(error);
  }
  CHECK(text.starts_with("[memory] out of memory: this process has "));
  CHECK(has(text, "GiB are available"));
}
#endif

TEST_CASE("process: a tensor and a segmentation that no memory holds are named with their sizes") {
  const auto tensor = error_text([] { zeros({std::int64_t{1} << 50}, DType::float32); });
  CHECK(has(tensor, "a tensor takes 4503599627370496 bytes"));
  CHECK(has(tensor, "are available"));
  data::FunctionSamples samples{.size = 1, .extents = {1, 1, 1 << 20}, .name = "scan"};
  samples.values = [](std::int64_t, const Box&, std::span<float> out) { std::fill(out.begin(), out.end(), 0.0F); };
  samples.targets = [](std::int64_t) { return std::vector<double>{0}; };
  const data::FunctionSource source(samples);
  ManyClasses net;
  const auto sums = error_text([&] { segmentation::sliding_window(net, source, 0, {.window = {1, 1, 1}, .overlap = 0}); });
  CHECK(has(sums, "scan [0] of 1 x 1 x 1048576 cells, with a number for each of 4194304 classes: 17592186044416 bytes"));
}

TEST_CASE("process: an error of an op knows the operands that are parameters, and the calls that led to it") {
  struct Net : nn::Module {
    Tensor operator()(const Tensor& x) override { return linear(x); }
    nn::Linear linear{*this, "linear", {.out = 2}};
  } net;
  net.build(Shape{4, 3});
  try {
    net(ones({4, 3}, DType::float64));
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(!error.stack().empty());
    CHECK(has(error.note(), "operand 1 is linear.weight"));
    CHECK(has(place_of(error), "\n  operand 1 is linear.weight"));
  }
  CHECK(place_of(std::length_error("another")).empty());
}

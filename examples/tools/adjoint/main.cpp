// The adjoint calculator: shows what an MPI operation does to the ranks' vectors, and what its adjoint does to their cotangents.
//
//   build/examples/adjoint allreduce --ranks 3 --x "2,-1;3,4;-5,4" --ybar "1,10;2,20;4,40"
//
// With the ranks' vectors stacked, each linear operation is a matrix, and the adjoint multiplies by its transpose. Both are
// shown.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <utility>

#include "comm/launch.h"
#include "examples/tools/adjoint/calculate.h"
#include "examples/tools/adjoint/operations.h"

namespace mpigrad::adjoint {
namespace {

std::string footer() {
  std::string text =
      "Ranks are separated by semicolons, their numbers by commas; an empty field is a rank that holds nothing.\n"
      "--transport threads --ranks P (the default) makes P ranks in this process; --transport mpi runs under mpiexec -n P.\n";
  text += tool::environment_help;
  text +=
      "\n"
      "Operations:";
  std::string line;
  for (const auto& each : operations()) {
    if (line.size() + each.name.size() > 90) text += "\n " + std::exchange(line, "");
    line += " " + std::string(each.name);
  }
  return text + "\n " + line;
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  const Communicator world(transport);
  CLI::App app("Shows what an MPI operation and its adjoint do to the vectors of P ranks.", "adjoint");
  app.footer(footer());
  Options o;
  app.add_option("op", o.op, "the operation by MPI's name: allreduce, Allreduce or MPI_Allreduce")->required();
  app.add_option("--x", o.x, "every rank's input, as 2,-1;3,4;-5,4 (required)")->type_name("NUMBERS");
  app.add_option("--ybar", o.ybar, "every rank's cotangent of the result (required)")->type_name("NUMBERS");
  app.add_option("--reduce", o.reduce, "how ranks are combined")
      ->check(CLI::IsMember({"sum", "max", "min", "prod", "avg"}))
      ->capture_default_str();
  app.add_option("--ties", o.ties, "the ranks that get the cotangent of a maximum that several ranks attain")
      ->check(CLI::IsMember({"split", "first"}))
      ->capture_default_str();
  app.add_option("--root", o.root, "for bcast, reduce, gather, scatter")->capture_default_str();
  app.add_option("--counts", o.counts, "the v form: of every rank, as 1,0,2; alltoall: a matrix, as 1,2;0,1")
      ->type_name("COUNTS");
  app.add_option("--width", o.width, "for halo: ghosts on each side")
      ->check(tool::whole_number(0, most_width))
      ->capture_default_str();
  app.add_flag("--periodic", o.periodic, "for halo: each end continues at the other end");
  app.add_option("--by", o.by, "for shift: rank r gets the x of rank r - K")
      ->check(tool::whole_number(-1'000'000, 1'000'000))
      ->capture_default_str();
  const auto peers = [&](const char* name, std::optional<std::string>& value, const char* text) {
    app.add_option(name, value, text)->type_name("RANKS");
  };
  peers("--dest", o.dest, "for send, recv, sendrecv, isend: the rank to which each rank sends, as 1,2,-1; -1 is MPI_PROC_NULL");
  peers("--source", o.source, "the rank from which each rank receives; follows from --dest, and --dest from it");
  peers("--graph", o.graph, "for neighbor_*: destinations of each rank, as 1,2;0;");
  peers("--target", o.target, "for get, put, accumulate: the rank whose window each rank accesses, -1 for none");
  app.add_option("--second", o.second, "ranks i,j: adds the second derivative by x_i and x_j of the sum of <ybar, y>")
      ->type_name("I,J");
  app.add_flag("--json", o.json, "print one JSON document and nothing else");
  std::string picture;
  app.add_option("--picture", picture, "an SVG file: the matrix, its transpose, and the messages between ranks")
      ->type_name("FILE");
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  return tool::finish(app, *transport, [&] {
    const auto problem = make_problem(o, world.size());
    const auto result = calculate(problem, world, !o.json || !picture.empty());
    std::string text;  // only rank 0 has the result
    if (world.rank() == 0) text = o.json ? tool::to_text(to_json(problem, result)) + "\n" : to_text(problem, result);
    tool::together(*transport, [&] {
      if (world.rank() == 0 && !picture.empty()) tool::write_text(picture, to_svg(problem, result));
    });
    tool::print_once(*transport, text);
    return 0;
  });
}

// Checks the number of ranks before the threads are started.
bool too_many_threads(int argc, char** argv) {
  try {
    std::vector<char*> copy(argv, argv + argc + 1);
    const auto options = resolve_launch_options(take_launch_options(argc, copy.data()));
    return options.transport == "threads" && options.ranks > most_ranks;
  } catch (const std::exception&) {
    return false;  // launch() reports the error
  }
}

}  // namespace
}  // namespace mpigrad::adjoint

int main(int argc, char** argv) {
  if (mpigrad::adjoint::too_many_threads(argc, argv)) {
    fmt::print(stderr, "adjoint: --ranks: from 1 to {} threads\n", mpigrad::adjoint::most_ranks);
    return 2;
  }
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::adjoint::run(transport, argc, argv);
  });
}

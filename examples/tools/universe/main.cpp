// Simulates small universes as training data for CosmoFlow.
//
//   mpiexec -n 2 build/examples/universe generate --out universes --universes 8 --size 32 --cell 4 --seed 1
//   build/examples/universe power --power bbks --redshift 0,1
//   build/examples/universe displace --delta ic.hdf5:delta --box 100 --out moved.hdf5

#include "comm/launch.h"

#include <CLI/CLI.hpp>
#include "examples/tools/universe/commands.h"

namespace mpigrad::universe {

namespace {

void add_power_name(CLI::App& command, std::string& name) {
  command.add_option("--power", name, "linear power spectrum: bbks, eh (Eisenstein & Hu 1998) or eh-nowiggle")
      ->check(CLI::IsMember({"bbks", "eh", "eh-nowiggle"}))
      ->capture_default_str();
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  CLI::App app("Simulates small universes: Gaussian fields, Lagrangian displacements, particle counts.", "universe");
  app.require_subcommand(1);

  GenerateOptions make;
  auto& simulation = make.simulation;
  auto* generate_command = app.add_subcommand("generate", "draw parameters, simulate, write one HDF5 file per universe");
  generate_command->add_option("--out", make.out, "folder for universe_00000.hdf5 and so on")->required();
  generate_command->add_option("--universes", make.universes, "number of universes")
      ->check(tool::whole_number(1, 100000))
      ->capture_default_str();
  generate_command->add_option("--first", make.first, "number of the first universe")
      ->check(tool::whole_number(0, 1000000000))
      ->capture_default_str();
  generate_command->add_option("--size", simulation.size, "cells per side")
      ->check(tool::whole_number(4, 8192))
      ->capture_default_str();
  generate_command->add_option("--cell", simulation.cell, "side of a cell in Mpc/h; the box is size x cell")
      ->check(tool::number_between(1e-3, 1e5))
      ->capture_default_str();
  generate_command->add_option("--seed", simulation.seed, "the same seed gives the same universes on any number of ranks")
      ->check(tool::whole_number(0))
      ->capture_default_str();
  add_power_name(*generate_command, make.power);
  generate_command->add_option("--order", simulation.order, "order of the displacement: 1 (Zel'dovich) or 2")
      ->check(tool::whole_number(1, 2))
      ->capture_default_str();
  generate_command->add_flag("--spread", make.spread, "one universe per rank instead of all ranks on one universe");
  generate_command->add_flag("--overwrite", make.overwrite, "replace files that exist");
  generate_command->add_flag("--json", make.json, "print one JSON document and nothing else");

  PowerOptions print;
  auto* power_command = app.add_subcommand("power", "print the linear power spectrum in (Mpc/h)^3");
  auto& cosmology = print.cosmology;
  const auto number = [&](const char* name, double& value, const CLI::Validator& rule, const char* text) {
    power_command->add_option(name, value, text)->check(rule)->capture_default_str();
  };
  number("--omega-m", cosmology.omega_m, tool::number_above(0), "matter density");
  number("--omega-b", cosmology.omega_b, tool::number_above(0), "baryon density");
  number("--sigma8", cosmology.sigma_8, tool::number_above(0), "rms fluctuation in spheres of 8 Mpc/h");
  number("--ns", cosmology.spectral_index, tool::any_number(), "spectral index");
  number("--h0", cosmology.hubble, tool::number_above(0), "H_0 in km/s/Mpc");
  power_command->add_option("--tcmb", print.temperature, "temperature of the microwave background in K (bbks: 2.7, else 2.725)")
      ->check(tool::number_between(0.1, 100));
  add_power_name(*power_command, print.power);
  power_command->add_option("--redshift,--redshifts", print.redshifts, "redshifts, separated by commas")
      ->delimiter(',')
      ->check(tool::number_above(-1))
      ->capture_default_str();
  number("--kmin", print.k_min, tool::number_above(0), "first wavenumber in h/Mpc");
  number("--kmax", print.k_max, tool::number_above(0), "last wavenumber");
  power_command->add_option("--points", print.points, "wavenumbers, evenly spaced in log k")
      ->check(tool::whole_number(2, 10000000))
      ->capture_default_str();
  power_command->add_option("--k", print.k, "wavenumbers, separated by commas, instead of the range")
      ->delimiter(',')
      ->check(tool::number_above(0));
  power_command->add_flag("--json", print.json, "print one JSON document and nothing else");

  DisplaceOptions move;
  auto* displace_command =
      app.add_subcommand("displace", "Lagrangian displacement of a density field: x = q + box * (dx, dy, dz)");
  displace_command->add_option("--delta", move.delta, "density contrast [N, N, N], as FILE:DATASET (HDF5)")->required();
  displace_command->add_option("--box", move.box, "side of the box in Mpc/h")->required()->check(tool::number_above(0));
  displace_command->add_option("--order", move.order, "order of the displacement: 1 (Zel'dovich) or 2")
      ->check(tool::whole_number(1, 2))
      ->capture_default_str();
  displace_command->add_option("--out", move.out, "HDF5 file for dx, dy, dz")->required();
  displace_command->add_flag("--overwrite", move.overwrite, "replace the file if it exists");
  displace_command->add_flag("--json", move.json, "print one JSON document and nothing else");

  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  const auto given = tool::given_options(app);
  return tool::finish(app, *transport, [&] {
    for (const auto* option : {"--kmin", "--kmax", "--points"})
      if (given.contains(option) && !print.k.empty())
        throw UsageError(fmt::format("{} describes a range, but --k gives all wavenumbers", option));
    if (*generate_command) return generate(transport, make);
    if (*power_command) return print_power(transport, print);
    return displace(transport, move);
  });
}

}  // namespace

}  // namespace mpigrad::universe

int main(int argc, char** argv) {
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::universe::run(transport, argc, argv);
  });
}

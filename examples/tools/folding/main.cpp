// Simulates chains that fold and unfold, as contact maps with their fractions of native contacts.
//
//   build/examples/folding --chains 20 --frames 1000 --out chains.h5
//   build/examples/folding --structure sheet --residues 24 --temperature 0.62 --out sheets.npy

#include <CLI/CLI.hpp>
#include <exception>
#include <numeric>

#include "comm/hdf5/hdf5_tensor.h"
#include "examples/tools/folding/chain.h"
#include "models/data/sources/npy.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::folding {
namespace {

struct Options {
  Simulation simulation{};
  std::int64_t chains = 20;
  std::uint64_t seed = 1;
  std::filesystem::path out;
  bool overwrite = false;
};

// Chain c depends on the seed and c only, so it does not matter how many threads there are.
std::vector<Frames> simulate_all(const Options& o) {
  std::vector<Frames> chains(static_cast<std::size_t>(o.chains));
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t c = 0; c < o.chains; ++c) {
    try {
      chains[static_cast<std::size_t>(c)] =
          simulate(o.simulation, Philox{o.seed, 0x666f6c64}.child(static_cast<std::uint64_t>(c)));
    } catch (...) {
#pragma omp critical(folding_chains)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return chains;
}

int generate(const Options& o) {
  if (o.out.extension() != ".h5" && o.out.extension() != ".npy")
    throw tool::UsageError(fmt::format("--out {} is neither .h5 nor .npy", o.out.string()));
  const auto native_contacts = native_structure(o.simulation.structure, o.simulation.residues).contacts.size();
  const auto chains = simulate_all(o);
  std::vector<double> maps, native, chain;
  std::size_t events = 0;  // a chain folds: from less than 0.25 of the native contacts to more than 0.75
  for (std::size_t c = 0; c < chains.size(); ++c) {
    maps.insert(maps.end(), chains[c].maps.begin(), chains[c].maps.end());
    native.insert(native.end(), chains[c].native.begin(), chains[c].native.end());
    chain.insert(chain.end(), chains[c].native.size(), static_cast<double>(c));
    bool folded = true;
    for (const auto q : chains[c].native) {
      if (q < 0.25F) folded = false;
      if (q > 0.75F && !folded) folded = true, ++events;
    }
  }
  const auto n = std::ssize(native), r = o.simulation.residues;
  const auto of_maps = from_vector({n, r, r}, maps, DType::uint8), of_native = from_vector({n}, native),
             of_chain = from_vector({n}, chain, DType::int64);
  if (o.out.extension() == ".h5") {
    write_hdf5(o.out, {{"contact_maps", of_maps}, {"native", of_native}, {"chain", of_chain}}, o.overwrite);
  } else {
    const auto sibling = [&](const char* what) {
      return o.out.parent_path() / fmt::format("{}-{}.npy", o.out.stem().string(), what);
    };
    write_npy(o.out, of_maps, o.overwrite);
    write_npy(sibling("native"), of_native, o.overwrite), write_npy(sibling("chain"), of_chain, o.overwrite);
  }
  const double mean = std::accumulate(native.begin(), native.end(), 0.0) / static_cast<double>(n);
  fmt::print(
      "{} frames of {} chains of {} residues with {} native contacts, of which {:.2f} exist on average; {} foldings\n"
      "written to {}\n",
      n, o.chains, r, native_contacts, mean, events, o.out.string());
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app("Simulates chains that fold and unfold, as contact maps.", "folding");
  Options o;
  auto& s = o.simulation;
  app.add_option("--out", o.out, "FILE.h5 with contact_maps, native and chain; or FILE.npy, FILE-native.npy and FILE-chain.npy")
      ->required();
  app.add_option("--structure", s.structure, "of the folded chain: hairpin or sheet")
      ->check(CLI::IsMember({"hairpin", "sheet"}))
      ->capture_default_str();
  app.add_option("--residues", s.residues, "of a chain")->check(tool::whole_number(16, 200))->capture_default_str();
  app.add_option("--chains", o.chains, "number of chains")->check(tool::whole_number(1, 100000))->capture_default_str();
  app.add_option("--frames", s.frames, "of each chain")->check(tool::whole_number(1, 10000000))->capture_default_str();
  app.add_option("--steps", s.steps_per_frame, "of the dynamics between two frames")
      ->check(tool::whole_number(1, 1000000))
      ->capture_default_str();
  app.add_option("--temperature", s.temperature, "in units of the depth of a native contact")
      ->check(tool::number_above(0))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "the same seed gives the same frames on any number of threads")
      ->check(tool::whole_number(0))
      ->capture_default_str();
  app.add_flag("--overwrite", o.overwrite, "replace files that exist");
  if (const int code = tool::parse(app, argc, argv); code >= 0) return code;
  return tool::finish(app, [&] { return generate(o); });
}

}  // namespace
}  // namespace mpigrad::folding

int main(int argc, char** argv) { return mpigrad::folding::run(argc, argv); }

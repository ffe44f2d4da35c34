#include "examples/tools/universe/simulation.h"

#include <algorithm>
#include <array>
#include <optional>

#include "comm/hdf5/hdf5_file.h"
#include "examples/tools/universe/particles.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::universe {

Universe simulate(const SlabFft& fft, const Simulation& simulation, std::uint64_t index) {
  Universe universe;
  universe.index = index;
  universe.draw = draw_parameters(simulation.seed, index);
  const LinearPower power(simulation.spectrum, universe.draw.cosmology);
  const auto delta = gaussian_field(
      fft, [&](double k) { return power(k); }, simulation.cell, simulation.seed, index);
  const Displacement psi1 = first_order(fft, delta);
  const Displacement psi2 = simulation.order == 2 ? second_order(fft, delta) : Displacement{};

  constexpr int channels = static_cast<int>(redshifts.size());
  universe.counts.resize(fft.real_size() * redshifts.size());
  for (int channel = 0; channel < channels; ++channel) {
    const double growth = power.relative_growth(redshifts[static_cast<std::size_t>(channel)]);
    const auto counts = count_particles(fft, psi1, psi2, growth);
    for (const auto count : counts) universe.largest = std::max<std::int64_t>(universe.largest, count);
    store_channel(counts, universe.counts, channels, channel);
  }
  return universe;
}

std::string file_name(std::uint64_t index) { return fmt::format("universe_{:05}.hdf5", index); }

void write_universe(const std::filesystem::path& path, bool overwrite, const SlabFft& fft, const Simulation& simulation,
                    const Universe& universe) {
  const std::int64_t n = fft.n();
  auto& transport = fft.transport();
  std::optional<Hdf5Writer> writer;
  tool::together(transport, [&] { writer.emplace(path, overwrite, fft.shared_transport()); });
  auto& file = *writer;
  file.create("full", {n, n, n, 4}, DType::int16);
  const std::array<std::int64_t, 4> begin{fft.x_range().begin, 0, 0, 0}, end{fft.x_range().end, n, n, 4};
  tool::together(transport, [&] { file.write_box("full", begin, end, DType::int16, universe.counts.data()); });
  std::array<float, 4> channels{};
  std::copy(redshifts.begin(), redshifts.end(), channels.begin());
  file.write<float>("unitPar", universe.draw.unit);
  file.write<float>("physPar", universe.draw.physical);
  file.write<float>("redshifts", channels);
  file.write_strings("namePar", {parameter_names.begin(), parameter_names.end()});
  file.attribute("/", "universe", static_cast<std::int64_t>(universe.index));
  file.attribute("/", "seed", static_cast<std::int64_t>(simulation.seed));
  file.attribute("/", "cell", simulation.cell);
  file.attribute("/", "box", simulation.cell * static_cast<double>(n));
  file.attribute("/", "power", std::string(name_of(simulation.spectrum)));
  file.attribute("/", "order", static_cast<std::int64_t>(simulation.order));
  file.commit();
}

}  // namespace mpigrad::universe

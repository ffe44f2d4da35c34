#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>

#include "examples/tools/universe/commands.h"

namespace mpigrad::universe {

namespace {

std::vector<double> wavenumbers(const PowerOptions& options) {
  const auto positive = [](double k) { return std::isfinite(k) && k > 0; };
  if (!options.k.empty()) {
    for (const double k : options.k)
      if (!positive(k)) throw UsageError(fmt::format("[power] --k must be positive, got {}", k));
    return options.k;
  }
  if (!positive(options.k_min) || !positive(options.k_max) || options.k_min >= options.k_max || options.points < 2)
    throw UsageError(fmt::format("[power] 0 < --kmin < --kmax and --points >= 2 are needed, got {}, {} and {}", options.k_min,
                                 options.k_max, options.points));
  std::vector<double> k;
  for (int i = 0; i < options.points; ++i)
    k.push_back(options.k_min * std::pow(options.k_max / options.k_min, static_cast<double>(i) / (options.points - 1)));
  return k;
}

}  // namespace

int print_power(const std::shared_ptr<Transport>& transport, const PowerOptions& options) {
  const auto k = wavenumbers(options);
  const auto spectrum = spectrum_of(options.power);
  for (const double z : options.redshifts)
    if (!(z > -1) || !std::isfinite(z)) throw UsageError(fmt::format("[power] --redshift must be above -1, got {}", z));
  std::optional<LinearPower> linear;
  std::vector<double> growths, squared;
  try {
    linear.emplace(spectrum, options.cosmology, options.temperature);
    for (const double z : options.redshifts) {
      growths.push_back(growth(options.cosmology, z));
      squared.push_back(std::pow(linear->relative_growth(z), 2));
    }
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  const auto& power = *linear;

  if (!options.json) {
    std::string text = "# k [h/Mpc]";
    for (const double z : options.redshifts) text += fmt::format("  P(k, z = {}) [(Mpc/h)^3]", z);
    text += "\n";
    for (const double each : k) {
      text += fmt::format("{:.10e}", each);
      const double today = power(each);
      for (const double factor : squared) text += fmt::format(" {:.10e}", today * factor);
      text += "\n";
    }
    tool::print_once(*transport, text);
    return 0;
  }
  const auto& c = options.cosmology;
  nlohmann::ordered_json result{{"command", "power"},
                                {"spectrum", name_of(spectrum)},
                                {"cosmology",
                                 {{"omega_m", c.omega_m},
                                  {"omega_b", c.omega_b},
                                  {"sigma8", c.sigma_8},
                                  {"ns", c.spectral_index},
                                  {"h0", c.hubble},
                                  {"tcmb", power.temperature()}}},
                                {"units", {{"k", "h/Mpc"}, {"power", "(Mpc/h)^3"}}},
                                {"redshifts", options.redshifts},
                                {"growth", growths},
                                {"k", k}};
  auto& rows = result["power"] = nlohmann::ordered_json::array();  // power[i][j]: redshift i, wavenumber j
  for (const double factor : squared) {
    std::vector<double> row;
    for (const double each : k) row.push_back(power(each) * factor);
    rows.push_back(row);
  }
  tool::print_once(*transport, tool::to_text(result) + "\n");
  return 0;
}

}  // namespace mpigrad::universe

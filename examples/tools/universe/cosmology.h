#pragma once
// Linear cosmology of a flat universe of matter and a cosmological constant: power spectrum, normalisation, growth.
// Wavenumbers k in h/Mpc, power in (Mpc/h)^3, lengths in Mpc/h.

#include <string_view>
#include <vector>

namespace mpigrad::universe {

struct Cosmology {
  double omega_m = 0.30;         // matter, baryons included, in units of the critical density today
  double sigma_8 = 0.80;         // linear rms fluctuation today in spheres of 8 Mpc/h
  double spectral_index = 0.96;  // n_s
  double hubble = 70;            // H_0 in km/s/Mpc; h = H_0 / 100
  double omega_b = 0.045;        // baryons
};

enum class Spectrum {
  bbks,         // Bardeen, Bond, Kaiser & Szalay 1986 (G3), with Sugiyama's 1995 shape Gamma
  eh,           // Eisenstein & Hu 1998, baryon acoustic oscillations included (equations 16 to 24)
  eh_nowiggle,  // the same paper's fit without oscillations (equations 28 to 31)
};

Spectrum spectrum_of(std::string_view name);  // "bbks", "eh", "eh-nowiggle"; Error for other names
std::string_view name_of(Spectrum spectrum);
// Temperature of the microwave background, in K, at which each fit is customarily evaluated: 2.7 for bbks, 2.725 for eh*.
double default_temperature(Spectrum spectrum);

// T(k), 1 for k -> 0.
double transfer(Spectrum spectrum, const Cosmology& cosmology, double temperature, double k);

// D(z) = (5/2) Omega_m E(a) integral_0^a da' / (a' E(a'))^3, a = 1 / (1 + z), E(a) = sqrt(Omega_m / a^3 + 1 - Omega_m)
// (Heath 1977). D -> a in the matter era; relative error below 1e-12.
double growth(const Cosmology& cosmology, double redshift);

// P(k, z) = A k^n_s T(k)^2 (D(z) / D(0))^2, with A chosen to give sigma_8. Error for unphysical parameters.
class LinearPower {
 public:
  // temperature <= 0: the spectrum's default. Error for a temperature that is not finite.
  LinearPower(Spectrum spectrum, const Cosmology& cosmology, double temperature = 0);

  double operator()(double k) const;                   // today
  double operator()(double k, double redshift) const;  // slower: integrates the growth
  // D(z) / D(0)
  double relative_growth(double redshift) const;
  // Linear rms fluctuation in spheres of this radius today: sigma^2 = integral dk/k k^3 P(k) / (2 pi^2) W(k R)^2,
  // W(x) = 3 (sin x - x cos x) / x^3.
  double sigma(double radius) const;
  double temperature() const { return temperature_; }

 private:
  Spectrum spectrum_;
  Cosmology cosmology_;
  double temperature_;
  double amplitude_ = 1;
  double growth_today_ = 1;
};

// Refuses parameters that are not finite, not positive, or that leave no dark energy (omega_m > 1) or no cold matter.
void check(const Cosmology& cosmology);

}  // namespace mpigrad::universe

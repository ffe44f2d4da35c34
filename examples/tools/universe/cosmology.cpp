#include "examples/tools/universe/cosmology.h"

#include <array>
#include <cmath>
#include <numbers>

#include "framework/base/error.h"

namespace mpigrad::universe {

namespace {

constexpr double e = std::numbers::e;

double square(double x) { return x * x; }

double bbks(const Cosmology& c, double theta, double k) {
  const double h = c.hubble / 100;
  const double shape = c.omega_m * h * std::exp(-c.omega_b * (1 + std::sqrt(2 * h) / c.omega_m));
  const double q = theta * theta * k / shape;
  if (q < 1e-9) return 1;
  const double polynomial = 1 + 3.89 * q + std::pow(16.1 * q, 2) + std::pow(5.46 * q, 3) + std::pow(6.71 * q, 4);
  return std::log1p(2.34 * q) / (2.34 * q) * std::pow(polynomial, -0.25);
}

// theta = temperature / 2.7 K; k in h/Mpc, inside the fits in 1/Mpc.
double eh_nowiggle(const Cosmology& c, double theta, double k) {
  const double h = c.hubble / 100;
  const double matter = c.omega_m * h * h, baryons = c.omega_b * h * h, fraction = c.omega_b / c.omega_m;
  const double horizon = 44.5 * std::log(9.83 / matter) / std::sqrt(1 + 10 * std::pow(baryons, 0.75));  // (26), Mpc
  const double alpha = 1 - 0.328 * std::log(431 * matter) * fraction + 0.38 * std::log(22.3 * matter) * square(fraction);
  const double shape = c.omega_m * h * (alpha + (1 - alpha) / (1 + std::pow(0.43 * k * h * horizon, 4)));  // (30)
  const double q = k * theta * theta / shape;                                                              // (28)
  const double l = std::log(2 * e + 1.8 * q);
  return l / (l + (14.2 + 731 / (1 + 62.5 * q)) * q * q);  // (29)
}

// Equations 17 to 20: the pressureless transfer function with an effective alpha and beta.
double pressureless(double q, double alpha, double beta) {
  const double l = std::log(e + 1.8 * beta * q);
  return l / (l + (14.2 / alpha + 386 / (1 + 69.9 * std::pow(q, 1.08))) * q * q);
}

double eh(const Cosmology& c, double theta, double k_in_h) {
  const double h = c.hubble / 100, k = k_in_h * h;
  const double matter = c.omega_m * h * h, baryons = c.omega_b * h * h;
  const double baryon_fraction = c.omega_b / c.omega_m, cold_fraction = 1 - baryon_fraction;
  const double theta4 = std::pow(theta, 4);

  const double z_equality = 2.5e4 * matter / theta4;           // (2)
  const double k_equality = 7.46e-2 * matter / square(theta);  // (3)
  const double b1 = 0.313 * std::pow(matter, -0.419) * (1 + 0.607 * std::pow(matter, 0.674));
  const double b2 = 0.238 * std::pow(matter, 0.223);
  const double z_drag =
      1291 * std::pow(matter, 0.251) / (1 + 0.659 * std::pow(matter, 0.828)) * (1 + b1 * std::pow(baryons, b2));  // (4)
  const double r_drag = 31.5 * baryons / theta4 * 1e3 / z_drag;                                                   // (5)
  const double r_equality = 31.5 * baryons / theta4 * 1e3 / z_equality;
  const double horizon = 2 / (3 * k_equality) * std::sqrt(6 / r_equality) *
                         std::log((std::sqrt(1 + r_drag) + std::sqrt(r_drag + r_equality)) / (1 + std::sqrt(r_equality)));  // (6)
  const double k_silk = 1.6 * std::pow(baryons, 0.52) * std::pow(matter, 0.73) * (1 + std::pow(10.4 * matter, -0.95));      // (7)

  const double q = k / (13.41 * k_equality);  // (10)
  const double ks = k * horizon;
  const double a1 = std::pow(46.9 * matter, 0.670) * (1 + std::pow(32.1 * matter, -0.532));
  const double a2 = std::pow(12.0 * matter, 0.424) * (1 + std::pow(45.0 * matter, -0.582));
  const double alpha_c = std::pow(a1, -baryon_fraction) * std::pow(a2, -std::pow(baryon_fraction, 3));  // (11)
  const double c1 = 0.944 / (1 + std::pow(458 * matter, -0.708)), c2 = std::pow(0.395 * matter, -0.0266);
  const double beta_c = 1 / (1 + c1 * (std::pow(cold_fraction, c2) - 1));                           // (12)
  const double f = 1 / (1 + std::pow(ks / 5.4, 4));                                                 // (18)
  const double cold = f * pressureless(q, 1, beta_c) + (1 - f) * pressureless(q, alpha_c, beta_c);  // (17)

  const double y = (1 + z_equality) / (1 + z_drag), root = std::sqrt(1 + y);
  const double g = y * (-6 * root + (2 + 3 * y) * std::log((root + 1) / (root - 1)));                              // (15)
  const double alpha_b = 2.07 * k_equality * horizon * std::pow(1 + r_drag, -0.75) * g;                            // (14)
  const double beta_node = 8.41 * std::pow(matter, 0.435);                                                         // (23)
  const double beta_b = 0.5 + baryon_fraction + (3 - 2 * baryon_fraction) * std::sqrt(square(17.2 * matter) + 1);  // (24)
  const double x = ks > 0 ? ks / std::cbrt(1 + std::pow(beta_node / ks, 3)) : 0;                                   // (22)
  const double bessel = x < 1e-4 ? 1 - x * x / 6 : std::sin(x) / x;
  const double decay = ks > 0 ? alpha_b / (1 + std::pow(beta_b / ks, 3)) * std::exp(-std::pow(k / k_silk, 1.4)) : 0;
  const double baryonic = (pressureless(q, 1, 1) / (1 + square(ks / 5.2)) + decay) * bessel;  // (21)
  return baryon_fraction * baryonic + cold_fraction * cold;                                   // (16)
}

// Fourier transform of the sphere of radius 1 and mean 1.
double top_hat(double x) {
  if (x < 1e-2) return 1 - x * x / 10 + x * x * x * x / 280;
  return 3 * (std::sin(x) - x * std::cos(x)) / (x * x * x);
}

}  // namespace

Spectrum spectrum_of(std::string_view name) {
  for (const auto spectrum : {Spectrum::bbks, Spectrum::eh, Spectrum::eh_nowiggle})
    if (name == name_of(spectrum)) return spectrum;
  fail("[power] unknown power spectrum '{}': bbks, eh or eh-nowiggle", name);
}

std::string_view name_of(Spectrum spectrum) {
  switch (spectrum) {
    case Spectrum::bbks: return "bbks";
    case Spectrum::eh: return "eh";
    case Spectrum::eh_nowiggle: return "eh-nowiggle";
  }
  return "?";
}

double default_temperature(Spectrum spectrum) { return spectrum == Spectrum::bbks ? 2.7 : 2.725; }

double transfer(Spectrum spectrum, const Cosmology& cosmology, double temperature, double k) {
  const double theta = temperature / 2.7;
  switch (spectrum) {
    case Spectrum::bbks: return bbks(cosmology, theta, k);
    case Spectrum::eh: return eh(cosmology, theta, k);
    case Spectrum::eh_nowiggle: return eh_nowiggle(cosmology, theta, k);
  }
  return 0;
}

double growth(const Cosmology& cosmology, double redshift) {
  require(redshift > -1 && std::isfinite(redshift), "[power] redshift must be above -1, got {}", redshift);
  const double matter = cosmology.omega_m, lambda = 1 - matter, a = 1 / (1 + redshift);
  // a = s^2 makes the integrand (a E)^-3 da = 2 s^4 (Omega_m + Lambda s^6)^-3/2 ds smooth at 0, so Gauss-Legendre converges
  // geometrically; 5 nodes on each of 64 pieces.
  constexpr std::array<double, 5> node{-0.9061798459386640, -0.5384693101056831, 0, 0.5384693101056831, 0.9061798459386640};
  constexpr std::array<double, 5> weight{0.2369268850561891, 0.4786286704993665, 0.5688888888888889, 0.4786286704993665,
                                         0.2369268850561891};
  constexpr int pieces = 64;
  const double end = std::sqrt(a), half = end / (2 * pieces);
  double integral = 0;
  for (int piece = 0; piece < pieces; ++piece)
    for (std::size_t i = 0; i < node.size(); ++i) {
      const double s = half * (2 * piece + 1 + node[i]);
      integral += weight[i] * half * 2 * std::pow(s, 4) * std::pow(matter + lambda * std::pow(s, 6), -1.5);
    }
  const double result = 2.5 * matter * std::sqrt(matter / (a * a * a) + lambda) * integral;
  require(std::isfinite(result), "[power] redshift {} is beyond what can be computed", redshift);
  return result;
}

void check(const Cosmology& c) {
  const auto positive = [](double x) { return std::isfinite(x) && x > 0; };
  require(positive(c.omega_m) && c.omega_m <= 1, "[power] Omega_m must be in (0, 1] in a flat universe, got {}", c.omega_m);
  require(positive(c.omega_b) && c.omega_b < c.omega_m, "[power] Omega_b must be in (0, Omega_m), got {} with Omega_m {}",
          c.omega_b, c.omega_m);
  require(positive(c.sigma_8), "[power] sigma_8 must be positive, got {}", c.sigma_8);
  require(positive(c.hubble), "[power] H_0 must be positive (km/s/Mpc), got {}", c.hubble);
  require(std::isfinite(c.spectral_index) && c.spectral_index > -3 && c.spectral_index < 4,
          "[power] n_s must be in (-3, 4), got {}", c.spectral_index);
}

LinearPower::LinearPower(Spectrum spectrum, const Cosmology& cosmology, double temperature)
    : spectrum_(spectrum), cosmology_(cosmology), temperature_(temperature > 0 ? temperature : default_temperature(spectrum)) {
  check(cosmology);
  require(std::isfinite(temperature), "[power] the temperature must be finite (K), got {}", temperature);
  growth_today_ = growth(cosmology, 0);
  amplitude_ = std::pow(cosmology.sigma_8 / sigma(8), 2);
  // Far from our universe the fits leave the range of floating-point numbers.
  require(growth_today_ > 0 && std::isfinite(amplitude_) && amplitude_ > 0,
          "[power] the power spectrum cannot be computed for Omega_m {}, Omega_b {}, sigma_8 {}, n_s {}, H_0 {}, temperature {}",
          cosmology.omega_m, cosmology.omega_b, cosmology.sigma_8, cosmology.spectral_index, cosmology.hubble, temperature_);
}

double LinearPower::operator()(double k) const {
  if (k <= 0) return 0;
  return amplitude_ * std::pow(k, cosmology_.spectral_index) * square(transfer(spectrum_, cosmology_, temperature_, k));
}

double LinearPower::operator()(double k, double redshift) const { return (*this)(k)*square(relative_growth(redshift)); }

double LinearPower::relative_growth(double redshift) const { return growth(cosmology_, redshift) / growth_today_; }

double LinearPower::sigma(double radius) const {
  require(radius > 0 && std::isfinite(radius), "[power] the radius of sigma must be positive (Mpc/h), got {}", radius);
  // Simpson in ln k; outside the range the integrand is negligible, and inside 8192 steps resolve the window's oscillations.
  constexpr int steps = 8192;
  const double low = std::log(1e-5 / radius), high = std::log(1e3 / radius), step = (high - low) / steps;
  double sum = 0;
  for (int i = 0; i <= steps; ++i) {
    const double k = std::exp(low + step * i);
    const double value = k * k * k * (*this)(k)*square(top_hat(k * radius));
    sum += (i == 0 || i == steps ? 1 : i % 2 ? 4 : 2) * value;
  }
  return std::sqrt(sum * step / 3 / (2 * std::numbers::pi * std::numbers::pi));
}

}  // namespace mpigrad::universe

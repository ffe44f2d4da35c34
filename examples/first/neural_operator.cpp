// Fourier neural operators learn two solution operators from data that solvers of the library make.
//
//   mpiexec -n 2 build/examples/neural_operator burgers
//   build/examples/neural_operator darcy 200 32 50 1 out      # training samples, points per side, epochs, seed, folder
//
// prints the error for samples that the network has not learned from, before and after training: the mean of
// |prediction - truth| / |truth|. It is the same on any number of ranks up to rounding in float32. Each rank solves the equations
// of some samples; then the network learns from fields of which each rank has a part. The folder gets network.h5, and inputs.npy
// and solutions.npy with the training samples and a quarter as many for the test.
//
// burgers: u_t + u u_x = nu u_xx on a circle, from u(x, 0) to u(x, 1). Fourier transforms in space without aliasing; the method
// of Runge and Kutta of fourth order in time, with exact integration of the viscous term.
//
// darcy: -div(a grad u) = 1 in a square with u = 0 at its boundary, from a(x, y) to u(x, y). Finite volumes, conjugate gradients.
//
// The problems are those of Li et al. 2021 ("Fourier neural operator for parametric partial differential equations"), but nu is
// 0.02, and the random fields of darcy are periodic.

#include <mpigrad/mpigrad.h>

#include <cmath>
#include <numbers>
using namespace mpigrad;

constexpr double turn = 2 * std::numbers::pi;

// f(k^2) of the integer frequencies of rfft along the last two of the dimensions [N, D, H, W, C], as [1, 1, H, W / 2 + 1, 1].
Tensor of_frequencies(std::int64_t h, std::int64_t w, const std::function<Tensor(const Tensor& square)>& f) {
  const auto along_h = reshape(fftfreq(h, 1.0 / static_cast<double>(h)), {1, 1, h, 1, 1});
  const auto along_w = reshape(rfftfreq(w, 1.0 / static_cast<double>(w)), {1, 1, 1, w / 2 + 1, 1});
  return constant(f(square(along_h) + square(along_w)));
}

// Gaussian random fields with the deviations f(k^2) of their Fourier coefficients, split as in `layout`.
Tensor random_fields(const LayoutPtr& layout, std::uint64_t seed, const std::function<Tensor(const Tensor& square)>& f) {
  const auto h = layout->global[2], w = layout->global[3];
  const auto noise = random_normal(layout->global, {.key = seed}, 0, 1, DType::float64, layout);
  const auto amplitude = of_frequencies(h, w, f) * std::sqrt(static_cast<double>(h * w));
  return irfft(rfft(noise, {2, 3}).without_layout() * amplitude, {2, 3}, w).with_layout(layout);
}

struct Fields {
  Tensor inputs, solutions;
};

Fields burgers(const LayoutPtr& layout) {
  const auto n = layout->global[3], steps = 4 * n;
  const double viscosity = 0.02, dt = 1 / static_cast<double>(steps);
  const auto start = random_fields(layout, 1, [](const Tensor& k2) {
    return where(k2 == 0, 0.0, 25 / (k2 * (turn * turn) + 25));  // their mean is 0
  });
  const auto k = reshape(rfftfreq(n, 1 / static_cast<double>(n)), {1, 1, 1, n / 2 + 1, 1});
  const auto kept = cast(k < static_cast<double>(n) / 3, DType::float64);
  const auto slope = constant(complex(zeros_like(k), k * kept * (-turn / 2)));  // of -u^2 / 2, without aliases
  const auto half = constant(exp(square(k) * (-viscosity * turn * turn * dt / 2))), whole = square(half);
  // The spectrum of -u u_x.
  const auto rate = [=](const Tensor& z) { return slope * rfft(square(irfft(z, {3}, n)), {3}); };
  const auto step = [=](const Tensor& z) {
    const auto a = rate(z), b = rate(half * (z + dt / 2 * a)), c = rate(half * z + dt / 2 * b),
               d = rate(whole * z + dt * half * c);
    return whole * z + dt / 6 * (whole * a + 2 * half * (b + c) + d);
  };
  const auto end = time_steps(step, rfft(start, {3}).without_layout(), steps);
  return {start, irfft(end, {3}, n).with_layout(layout)};
}

Fields darcy(const LayoutPtr& layout) {
  const auto n = layout->global[2];
  const auto field = random_fields(layout, 2, [](const Tensor& k2) { return 1 / (k2 * (turn * turn) + 9); });
  const auto side = sign(field), a = side * 4.5 + 7.5;  // 3 or 12
  // Conductivities of the faces between cells along dimension d, the boundary's at both ends.
  const auto faces = [&](int d) {
    const auto low = slice(a, d, 0, n - 1), high = slice(a, d, 1, n);
    return constant(concatenate({2 * slice(a, d, 0, 1), 2 * low * high / (low + high), 2 * slice(a, d, n - 1, n)}, d));
  };
  const auto faces_h = faces(2), faces_w = faces(3);
  // What flows out of the cells, along dimension d.
  const auto outflow = [n](const Tensor& u, const Tensor& conductivity, int d) {
    Shape ends{0, 0, 0, 0, 0};
    ends[d] = 1;
    const auto padded = pad(u, ends, ends);
    const auto flux = conductivity * (slice(padded, d, 0, n + 1) - slice(padded, d, 1, n + 2));
    return slice(flux, d, 1, n + 1) - slice(flux, d, 0, n);
  };
  const auto operation = [=](const Tensor& u) { return outflow(u, faces_h, 2) + outflow(u, faces_w, 3); };
  const auto source = constant(full(a.shape(), 1 / static_cast<double>(n * n), DType::float64).with_layout(layout));
  return {side, solve(operation, source, {.tolerance = 1e-9, .iterations = 20 * n}) * 100};  // inputs +-1, solutions about 1
}

// The mean of |prediction - truth| / |truth|.
double error_of(FNO3d& net, const data::Loader& loader) {
  const Predictions p = predict(net, loader);
  double sum = 0;
  for (std::size_t i = 0; i < p.samples.size(); ++i) {
    double difference = 0, square = 0;
    for (std::size_t j = i * static_cast<std::size_t>(p.targets); j < (i + 1) * static_cast<std::size_t>(p.targets); ++j)
      difference += std::pow(p.predicted[j] - p.truth[j], 2), square += std::pow(p.truth[j], 2);
    sum += std::sqrt(difference / square);
  }
  return sum / static_cast<double>(p.samples.size());
}

int main(int argc, char** argv) {
  const auto number = [&](int i, std::int64_t otherwise) {
    return i < argc && argv[i][0] != '-' ? std::int64_t{std::atoll(argv[i])} : otherwise;
  };
  const std::string name = argc > 1 ? argv[1] : "", folder = argc > 6 && argv[6][0] != '-' ? argv[6] : "";
  const bool line = name == "burgers";
  const auto training_samples = number(2, 200), n = number(3, line ? 256 : 32), epochs = number(4, 50), seed = number(5, 1);
  return run(argc, argv, [=](Session& session) {
    require(line || name == "darcy", "[neural_operator] the problem is burgers or darcy: {}", name);
    require(training_samples >= 4, "[neural_operator] 4 training samples or more, for a test with a quarter as many: {}",
            training_samples);
    const auto samples = training_samples + training_samples / 4;
    const auto layout = activation_layout(session.grid({.sample = session.ranks()}), {samples, 1, line ? 1 : n, n, 1});
    const auto made = line ? burgers(layout) : darcy(layout);
    const auto whole = [](const Tensor& x) { return cast(gather_all(x), DType::float32).without_layout(); };
    const auto inputs = whole(made.inputs), solutions = whole(made.solutions);
    if (!folder.empty() && session.rank() == 0) {
      std::filesystem::create_directories(folder);
      write_npy(folder + "/inputs.npy", inputs, true), write_npy(folder + "/solutions.npy", solutions, true);
    }

    // The last fifth of the samples is not learned from.
    const auto grid = session.grid(line ? GridExtents{.width = session.ranks()} : GridExtents{.height = session.ranks()});
    const auto source = data::from_tensors(inputs, solutions, {.per_cell = true, .name = name});
    data::Split split;
    for (std::int64_t i = 0; i < samples; ++i) (i < training_samples ? split.train : split.test).push_back(i);
    const data::Loader training(
        source, {.grid = grid, .batch = 20, .seed = static_cast<std::uint64_t>(seed), .shuffle = true, .samples = split.train});
    const data::Loader test(source, {.grid = grid, .batch = 20, .samples = split.test});

    FNO3d net(line ? FNO3dOptions{.modes = {1, 1, 16}, .width = 32} : FNO3dOptions{.modes = {1, 12, 7}, .width = 24});
    net.build(training.layout(), {.seed = static_cast<std::uint64_t>(seed)});
    Adam adam(net, {.learning_rate = 2e-3});
    const double before = error_of(net, test);
    fit(net, adam, training, mse, session.world(),
        {.epochs = epochs, .learning_rate = schedule::Cosine{.rate = 2e-3, .steps = epochs * training.steps()}});
    const double after = error_of(net, test);
    if (!folder.empty()) save_checkpoint(folder + "/network.h5", net, session.world());
    if (session.rank() == 0)
      fmt::print("{}: {} samples of {} points, {} parameters, {} epochs, seed {}: error {:.4f}, before {:.4f}\n", name,
                 training_samples, line ? n : n * n, net.parameters().elements(), epochs, seed, after, before);
  });
}

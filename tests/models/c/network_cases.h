#pragma once
// Networks of the trainers as files of weights, what the library itself computes with them on one rank, and handles for C++
// objects.

#include <doctest/doctest.h>
#include <mpigrad/c.h>
#include <mpigrad/mpigrad.h>

#include "models/c/functions.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

namespace mpigrad::testing::interface {

inline void ok(mpigrad_status status) {
  if (status != MPIGRAD_OK) throw Error(fmt::format("{}: {}", mpigrad_status_name(status), mpigrad_last_error()));
}
inline std::string refusal(mpigrad_status status) { return status == MPIGRAD_OK ? "no refusal" : mpigrad_last_error(); }

inline mpigrad_comm handle_of(const Communicator& comm) {
  return {capi::enter(capi::Kind::comm, std::make_shared<Communicator>(comm))};
}
inline mpigrad_tensor handle_of(const Tensor& x) { return {capi::enter(capi::Kind::tensor, std::make_shared<Tensor>(x))}; }
inline Tensor tensor_of(mpigrad_tensor x) { return capi::Call("test").tensor(x, "x"); }

// A network as a file of weights and by the library itself, with a batch.
struct Case {
  std::string name;
  std::map<std::string, std::string> notes;
  std::function<std::unique_ptr<nn::Module>()> make;
  Shape input;
  std::string loss;
  LossFunction function;
  Tensor x, target;
  std::vector<double> means{}, deviations{};
};

inline const std::string extents = R"("extents":[16,16,16],"channels":2,)";

inline std::vector<Case> cases() {
  const Shape cubes{4, 16, 16, 16, 2}, windows{2, 8, 8, 8, 1};
  const auto normal = [](const Shape& shape, std::uint64_t key) {
    return random_normal(shape, {.key = key}, 0, 1, DType::float64);
  };
  std::vector<Case> all;
  all.push_back(
      {.name = "cosmoflow",
       .notes = {{"program", "cosmoflow"},
                 {"problem",
                  "{" + extents + R"("outputs":3,"classes":false,"targets":["a","b","c"],"class_names":[],"settings":)" +
                      R"({"batch_norm":true,"filters":2,"last_layer":"fitted","padding":"circular","variant":"hybrid"}})"}},
       .make =
           [] {
             return std::make_unique<CosmoFlow>(
                 CosmoFlowOptions{.batch_norm = true, .filters = 2, .targets = 3, .padding_mode = PaddingMode::circular});
           },
       .input = cubes,
       .loss = "mse",
       .function = mse,
       .x = normal(cubes, 1),
       .target = normal({4, 3}, 2)});
  all.push_back(
      {.name = "classify, numbers",
       .notes = {{"program", "classify"},
                 {"problem", "{" + extents + R"("outputs":2,"classes":false,"targets":["a","b"],"class_names":[],)" +
                                 R"("means":[10,-3],"deviations":[2,0.5],"settings":{"filters":3,"full_resolution":false}})"}},
       .make = [] { return std::make_unique<Classifier>(ClassifierOptions{.outputs = 2, .filters = 3}); },
       .input = cubes,
       .loss = "mae",
       .function = mae,
       .x = normal(cubes, 3),
       .target = normal({4, 2}, 4),
       .means = {10, -3},
       .deviations = {2, 0.5}});
  all.push_back(
      {.name = "classify, classes",
       .notes = {{"program", "classify"},
                 {"problem", "{" + extents + R"("outputs":5,"classes":true,"targets":["label"],"class_names":[],)" +
                                 R"("settings":{"filters":2,"full_resolution":true}})"}},
       .make = [] { return std::make_unique<Classifier>(ClassifierOptions{.outputs = 5, .filters = 2, .pool_first = false}); },
       .input = cubes,
       .loss = "cross_entropy",
       .function = cross_entropy,
       .x = normal(cubes, 5),
       .target = from_vector({4}, {0, 4, 2, 1}, DType::int64)});
  all.push_back({.name = "unet3d",
                 .notes = {{"program", "unet3d"},
                           {"unet3d", R"({"variant":"lbann","filters":[2,3,4],"padding":"zeros","norm":"group","norm_groups":1,)"
                                      R"("statistics":"","classes":3,"channels":1,"window":[8,8,8],"normalisation":"volume"})"}},
                 .make =
                     [] {
                       return std::make_unique<UNet3d>(
                           UNet3dOptions{.variant = UNet3dVariant::lbann,
                                         .filters = {2, 3, 4},
                                         .norm = nn::NormAttributes{.kind = nn::NormAttributes::Kind::group, .groups = 1},
                                         .classes = 3});
                     },
                 .input = windows,
                 .loss = "dice_cross_entropy",
                 .function = segmentation::dice_cross_entropy_loss,
                 .x = normal(windows, 6),
                 .target = cast(affine(random_uniform({2, 8, 8, 8}, {.key = 7}, 0, 1, DType::float64), 2.99, 0), DType::int64)});
  return all;
}

// This rank's block of a whole tensor of samples on the grid.
inline Tensor block_of(const Tensor& x, const GridPtr& grid) {
  std::vector<int> dimensions{0};
  if (x.rank() >= 4) dimensions = {0, 1, 2, 3};
  const auto box = split_layout(grid, x.shape(), dimensions)->box();
  return constant(slice(x, box.begin, box.end));
}

inline double difference_of(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return INFINITY;
  const auto u = a.without_layout().to_vector(), v = b.without_layout().to_vector();
  double largest = 0;
  for (std::size_t i = 0; i < u.size(); ++i) largest = std::max(largest, std::abs(u[i] - v[i]));
  return largest;
}

// What the library itself computes, on one rank.
struct Expected {
  Tensor before;  // predictions
  std::vector<double> losses;
  Tensors parameters;  // after the steps
  std::string first_name;
};
inline constexpr int steps = 3;
inline constexpr double rate = 0.01, max_norm = 0.5;

inline Expected compute(const Case& c, const std::filesystem::path& file) {
  Expected result;
  const auto net = c.make();
  net->build(c.input, {.dtype = DType::float64});
  // Statistics that are not those of the start.
  for (auto& [name, value] : net->buffers())
    if (name.ends_with("mean")) value = value + 0.1;
  on_ranks(1, [&](const Communicator& comm) { save_checkpoint(file, *net, comm, {.info = {.notes = c.notes}}); });
  auto target = c.target;
  {
    const nn::EvaluationMode mode(*net);
    result.before = (*net)(c.x);
  }
  if (!c.means.empty()) {
    const auto mean = from_vector({2}, c.means, DType::float64), deviation = from_vector({2}, c.deviations, DType::float64);
    result.before = result.before * deviation + mean, target = (target - mean) / deviation;
  }
  Adam adam(*net, {.learning_rate = rate});
  for (int i = 0; i < steps; ++i) {
    Tape tape(*net);
    const auto loss = c.function((*net)(constant(c.x)), target);
    result.losses.push_back(loss.item());
    adam.step(tape.gradient(loss), {.max_norm = max_norm});
  }
  result.parameters = net->parameters().tensors(), result.first_name = net->parameters()[0].name;
  return result;
}

struct Handles {
  Handles(const Communicator& c, const Case& problem, const std::filesystem::path& file, const GridExtents& e) : comm(c) {
    ok(mpigrad_network_from_weights(file.c_str(), handle_of(c), e.sample, e.depth, e.height, e.width, &net));
    mpigrad_grid handle;
    ok(mpigrad_network_grid(net, &handle));
    grid = *capi::Call("test").get(handle, "grid");
    x = handle_of(block_of(problem.x, grid)), target = handle_of(block_of(problem.target, grid));
  }
  ~Handles() { mpigrad_destroy_all(); }
  // The largest difference from the parameters of the library's own training.
  double parameters_differ(const Expected& expected) const {
    int count = 0;
    ok(mpigrad_network_parameters(net, &count));
    double largest = count == static_cast<int>(expected.parameters.size()) ? 0 : INFINITY;
    for (int i = 0; i < count; ++i) {
      mpigrad_tensor p;
      ok(mpigrad_network_parameter(net, i, &p));
      largest = std::max(largest, difference_of(tensor_of(p), expected.parameters[static_cast<std::size_t>(i)]));
    }
    return largest;
  }
  Communicator comm;
  mpigrad_network net{};
  GridPtr grid;
  mpigrad_tensor x{}, target{};
};

inline const std::vector<GridExtents> grids{{}, {.depth = 2}, {.sample = 2}, {.height = 3}, {.sample = 2, .width = 2}};

}  // namespace mpigrad::testing::interface

#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <optional>

#include "comm/hdf5/hdf5_file.h"
#include "examples/tools/universe/commands.h"
#include "examples/tools/universe/displacement.h"
#include "framework/base/new_file.h"

namespace mpigrad::universe {

int displace(const std::shared_ptr<Transport>& transport, const DisplaceOptions& options) {
  namespace fs = std::filesystem;
  const auto colon = options.delta.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == options.delta.size())
    throw UsageError(fmt::format("[displace] --delta must be FILE:DATASET, got '{}'", options.delta));
  const fs::path source = options.delta.substr(0, colon);
  const std::string dataset = options.delta.substr(colon + 1);
  tool::together(*transport, [&] {
    if (transport->rank() != 0) return;
    std::error_code error;
    if (fs::equivalent(source, options.out, error))
      throw UsageError(fmt::format("[displace] --out {} would overwrite the field, {}", options.out, source.string()));
    require(options.overwrite || !is_name_taken(options.out), "[displace] {} exists already; --overwrite replaces it",
            options.out);
  });

  std::optional<Hdf5Reader> input;
  std::int64_t n = 0;
  tool::together(*transport, [&] {
    input.emplace(source, Hdf5Reach::folder);
    const auto info = input->describe(dataset);
    require(info.kind == Hdf5Dataset::Kind::number && is_floating(info.type),
            "[displace] {}: '{}' must hold floating-point numbers, it holds {}", source.string(), dataset, info.stored);
    require(info.shape.rank() == 3 && info.shape[0] == info.shape[1] && info.shape[1] == info.shape[2] && info.shape[0] >= 2,
            "[displace] {}: '{}' must be a cube [N, N, N], its shape is {}", source.string(), dataset, info.shape);
    n = info.shape[0];
  });
  std::optional<SlabFft> slabs;
  RealField contrast;
  std::array<std::int64_t, 3> begin{}, end{};
  tool::together(*transport, [&] {
    require_field_memory(fmt::format("[displace] {}:", source.string()), n, transport->size(), options.order);
    const auto& fft = slabs.emplace(transport, n);
    begin = {fft.x_range().begin, 0, 0}, end = {fft.x_range().end, n, n};
    contrast.resize(fft.real_size());
    input->read(dataset, begin, end, DType::float64, contrast.data());
    for (const double value : contrast)
      require(std::isfinite(value), "[displace] {}: '{}' holds values that are not finite", source.string(), dataset);
  });

  const auto& fft = *slabs;
  const auto delta = fft.forward(contrast);
  Displacement move = first_order(fft, delta);
  if (options.order == 2) {
    const auto second = second_order(fft, delta);
    for (std::size_t axis = 0; axis < 3; ++axis)
      for (std::size_t i = 0; i < move[axis].size(); ++i) move[axis][i] += second[axis][i];
  }

  constexpr std::array<const char*, 3> names{"dx", "dy", "dz"};
  std::array<double, 3> rms{};
  std::optional<Hdf5Writer> file;
  tool::together(*transport, [&] { file.emplace(options.out, options.overwrite, transport); });
  auto& output = *file;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    output.create(names[axis], {n, n, n}, DType::float64);
    tool::together(*transport, [&] { output.write_box(names[axis], begin, end, DType::float64, move[axis].data()); });
    for (const double value : move[axis]) rms[axis] += value * value;
  }
  output.attribute("/", "box", options.box);
  output.attribute("/", "order", static_cast<std::int64_t>(options.order));
  output.commit();

  transport->allreduce(rms.data(), rms.data(), 3, DType::float64, CombineOp::sum);
  for (auto& value : rms) value = options.box * std::sqrt(value / static_cast<double>(n * n * n));
  if (options.json) {
    const nlohmann::ordered_json result{{"command", "displace"}, {"out", options.out},     {"size", n},
                                        {"box", options.box},    {"order", options.order}, {"rms_mpc_h", rms}};
    tool::print_once(*transport, tool::to_text(result) + "\n");
  } else {
    tool::print_once(*transport,
                     fmt::format("{}: dx, dy, dz of {}^3 cells in units of the box; rms {:.4g}, {:.4g}, {:.4g} Mpc/h\n",
                                 options.out, n, rms[0], rms[1], rms[2]));
  }
  return 0;
}

}  // namespace mpigrad::universe

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

#include "examples/trainers/contact_maps/options.h"
#include "examples/trainers/contact_maps/scores.h"
#include "framework/base/joined.h"
#include "models/data/data.h"
#include "models/losses/variational.h"
#include "models/trainer/data_check.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/run_training.h"
#include "models/trainer/samples.h"

namespace mpigrad::contacts {
namespace {

constexpr const char *picture_file = "contact_maps.png", *latent_file = "latent.csv";

// The scores after an epoch, on the maps kept.
struct Scored {
  Predictions kept{};
  std::vector<double> latent{};  // of the maps kept
  ContactScore contacts{};
  double loss = 0, r2 = std::numeric_limits<double>::quiet_NaN();

  static std::vector<std::string> names() {
    return {"validation_loss", "contacts_found", "contacts_right", "all_contacts_found", "cells_right", "native_r2"};
  }
  std::vector<double> values() const { return {loss, contacts.found, contacts.right, contacts.all_found, contacts.cells, r2}; }
};

double loss_of(const Predictions& p, std::int64_t latent) {
  const auto n = static_cast<std::int64_t>(p.samples.size());
  Untaped scope;
  return vae_loss(from_vector({n, p.outputs}, p.predicted, DType::float64), from_vector({n, p.targets}, p.truth, DType::float64),
                  latent)
      .item();
}

std::vector<double> chosen(const std::vector<double>& values, const std::vector<std::int64_t>& samples) {
  std::vector<double> result;
  for (const auto i : samples) result.push_back(values[static_cast<std::size_t>(i)]);
  return result;
}

// At most `most` of the samples, evenly spaced.
std::vector<std::int64_t> some(const std::vector<std::int64_t>& samples, std::size_t most) {
  std::vector<std::int64_t> result;
  const auto n = std::min(most, samples.size());
  for (std::size_t i = 0; i < n; ++i) result.push_back(samples[i * samples.size() / n]);
  return result;
}

void write_latent(const std::filesystem::path& path, const ContactMaps& maps, const Scored& scored, std::int64_t latent) {
  std::string text = "map,chain,native";
  for (std::int64_t k = 1; k <= latent; ++k) text += fmt::format(",z{}", k);
  for (std::size_t i = 0; i < scored.kept.samples.size(); ++i) {
    const auto sample = static_cast<std::size_t>(scored.kept.samples[i]);
    text += fmt::format("\n{},{},{:.6g}", sample, maps.chain[sample], maps.native.empty() ? std::nan("") : maps.native[sample]);
    for (std::size_t k = 0; k < static_cast<std::size_t>(latent); ++k)
      text += fmt::format(",{:.6g}", scored.latent[i * static_cast<std::size_t>(latent) + k]);
  }
  trainer::write_text(path, text + "\n");
}

// Two latent variables against each other, with the fraction of native contacts as colour.
plot::Scatter latent_plane(const ContactMaps& maps, const Scored& scored, std::size_t latent, std::size_t a, std::size_t b) {
  constexpr std::size_t colours = 10;
  plot::Scatter scatter{.title = "chains not trained on",
                        .x_label = fmt::format("z{}", a + 1),
                        .y_label = fmt::format("z{}", b + 1),
                        .identity = false};
  for (std::size_t c = 0; c < colours; ++c) {
    const double low = static_cast<double>(c) / colours;
    plot::Series series{.label = c % 3 == 0 ? fmt::format("native from {:.1f}", low) : "",
                        .colour = plot::colour_map(0.05 + 0.85 * low)};
    for (std::size_t i = 0; i < scored.kept.samples.size(); ++i) {
      const auto native = maps.native.empty() ? 0 : maps.native[static_cast<std::size_t>(scored.kept.samples[i])];
      if (std::min(colours - 1, static_cast<std::size_t>(native * colours)) != c) continue;
      series.x.push_back(scored.latent[i * latent + a]), series.y.push_back(scored.latent[i * latent + b]);
    }
    if (!series.x.empty()) scatter.series.push_back(std::move(series));
  }
  return scatter;
}

void draw(const std::filesystem::path& path, const ContactMaps& maps, const Scored& scored, std::int64_t latent,
          const std::vector<EpochRow>& rows) {
  plot::Figure figure("Variational autoencoder of contact maps");
  const auto n = static_cast<std::size_t>(latent);
  std::vector<plot::Panel> planes;
  for (std::size_t b = 1; b < std::min<std::size_t>(n, 3); ++b) planes.emplace_back(latent_plane(maps, scored, n, 0, b));
  if (n > 2) planes.emplace_back(latent_plane(maps, scored, n, 1, 2));
  if (!planes.empty()) figure.row(400, std::move(planes));
  plot::Series training{.label = "training"}, kept{.label = "validation"};
  for (const auto& row : rows) {
    const auto epoch = static_cast<double>(row.report.epoch + 1);
    training.x.push_back(epoch), training.y.push_back(row.report.loss);
    kept.x.push_back(epoch), kept.y.push_back(row.values[0]);
  }
  std::vector<plot::Panel> last{
      plot::Lines{.title = "loss", .x_label = "epoch", .log_y = true, .markers = true, .series = {training, kept}}};
  // Two maps, above and below the diagonal: the one simulated, and the probabilities predicted.
  const auto side = static_cast<std::size_t>(maps.side), width = static_cast<std::size_t>(scored.kept.outputs);
  for (const std::size_t i : {scored.kept.samples.size() / 3, scored.kept.samples.size() * 2 / 3}) {
    plot::Image image{.title = fmt::format("map {}; predicted below the diagonal", scored.kept.samples[i]),
                      .rows = maps.residues,
                      .columns = maps.residues,
                      .low = 0,
                      .high = 1};
    for (std::size_t r = 0; r < static_cast<std::size_t>(maps.residues); ++r)
      for (std::size_t c = 0; c < static_cast<std::size_t>(maps.residues); ++c)
        image.values.push_back(r <= c ? scored.kept.truth[(i * side + r) * side + c]
                                      : 1 / (1 + std::exp(-scored.kept.predicted[i * width + r * side + c])));
    last.emplace_back(std::move(image));
  }
  figure.row(320, std::move(last));
  figure.save(path, true);
}

}  // namespace

int describe(const Communicator& world, const TrainOptions& o) {
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    const auto side = o.size > 0 ? o.size : o.data.empty() ? 22 : read_maps(o.data, o.names).side;
    const auto grid = trainer::parse_grid(o.grid, 1, trainer::Channels::split);
    ConvVae net(o.network(side));
    nlohmann::ordered_json more{{"program", "contact_maps"}, {"command", "describe"}, {"side", side}};
    trainer::print(trainer::describe(o, net, {trainer::described_batch(o, grid), 1, side, side, 1}, grid), o, more);
  });
  return 0;
}

int train(const Communicator& world, const TrainOptions& o) {
  if (o.data.empty()) throw trainer::UsageError("--data is needed");
  const auto extents = trainer::parse_grid(o.grid, world.size(), trainer::Channels::split);
  trainer::check_grid(extents, world.size());
  const auto files = trainer::training_files(o, {latent_file, picture_file});
  const trainer::Outputs out(world, o.out, trainer::protected_files(o, files), trainer::replaces(o));
  const auto grid = trainer::grid_of_ranks(world, o, extents);
  ContactMaps maps;
  ChainSplit split;
  std::unique_ptr<ConvVae> net;
  std::optional<data::Loader> loader, kept, seen;
  std::vector<std::int64_t> fitted;
  trainer::of_input(world, [&] {
    maps = read_maps(o.data, o.names, o.given.contains("data.native") || o.given.contains("data.chain"));
    split = split_chains(maps.chain, o.validation_fraction);
    trainer::require_batch(o, std::ssize(split.training));
    fitted = some(split.training, 2048);
    data::LoaderOptions options{.grid = grid, .batch = o.batch / o.training.fit.accumulate, .seed = o.seed};
    options.dtype = trainer::dtype_of(o);
    options.samples = split.kept, kept.emplace(maps.source, options);
    options.samples = fitted, seen.emplace(maps.source, options);
    options.samples = split.training, options.shuffle = true, options.drop_last = true, loader.emplace(maps.source, options);
    net = std::make_unique<ConvVae>(o.network(maps.side));
    trainer::build(*net, loader->layout(), loader->shape(), o);
  });
  trainer::require_same_data(world, *maps.source);
  const data::ContentsOptions reading{.dtype = trainer::dtype_of(o)};
  auto contents = trainer::read_data(world, *maps.source, split.training, reading);
  const auto kept_contents = trainer::read_data(world, *maps.source, split.kept, reading);
  trainer::Notes notes{
      {"program", "contact_maps"},
      {"network", fmt::format("side {} filters {} hidden {} latent {}", maps.side, o.filters, o.hidden, o.latent)},
      {"optimizer", fmt::format("{} {}", o.optimizer, o.mean_square)},
      {"validation fraction", fmt::format("{}", o.validation_fraction)},
      {"seed", std::to_string(o.seed)},
      {"batch", std::to_string(o.batch)},
      {"precision", trainer::precision_of(o)}};
  trainer::add_contents(notes, o.data, contents, &kept_contents);
  contents += kept_contents;
  Scored scored;
  const auto evaluate = [&] {
    scored.kept = predict(*net, *kept);
    scored.loss = loss_of(scored.kept, o.latent), scored.contacts = contact_score(scored.kept, maps.side);
    scored.latent = latent_means(scored.kept, o.latent);
    if (!maps.native.empty())
      scored.r2 = linear_r2(latent_means(predict(*net, *seen), o.latent), chosen(maps.native, fitted), scored.latent,
                            chosen(maps.native, split.kept));
    return scored.values();
  };
  const auto text = [](const EpochRow& row) {
    return fmt::format("validation {:.2f}, contacts found {:.3f}, R2 of native contacts {:.3f}", row.values[0], row.values[1],
                       row.values[5]);
  };
  return trainer::run_training(
      world, o, extents, out,
      {.program = "contact_maps",
       .net = *net,
       .loader = *loader,
       .optimizer = [&](Parameters& parameters) -> std::unique_ptr<Optimizer> {
         if (o.optimizer != "rmsprop") return trainer::make_optimizer(parameters, o);
         const auto& a = o.optimizer_options;
         return std::make_unique<RMSprop>(
             parameters,
             RmspropAttributes{.learning_rate = a.learning_rate, .smoothing = o.mean_square, .weight_decay = a.weight_decay});
       },
       .hooks = {.loss = [latent = o.latent](const Tensor& result, const Tensor& map) { return vae_loss(result, map, latent); },
                 .evaluate = evaluate,
                 .text = text},
       .notes = notes,
       .decisive = {"program", "network", "optimizer", "validation fraction"},
       .headline = fmt::format("{} contact maps of {} residues for training, {} of other chains for validation; {}",
                               split.training.size(), maps.residues, split.kept.size(), contents.remark()),
       .values = Scored::names(),
       .evaluated_samples = std::ssize(split.kept),
       .accuracy = [](const std::vector<double>& values) { return values[1]; },
       .report =
           [&](nlohmann::ordered_json run, const TrainerResult& result, const std::string& last) {
             write_latent(out / latent_file, maps, scored, o.latent);
             draw(out / picture_file, maps, scored, o.latent, result.epochs);
             run["program"] = "contact_maps", run["command"] = "train";
             run["residues"] = maps.residues, run["training_samples"] = split.training.size();
             run["validation_samples"] = split.kept.size();
             const auto names = Scored::names();
             const auto values = scored.values();
             for (std::size_t i = 0; i < names.size(); ++i) run[names[i]] = values[i];
             trainer::write_text(out / trainer::summary_file, tool::to_text(run) + "\n");
             if (o.json) {
               fmt::print("{}\n", tool::to_text(run));
               return;
             }
             fmt::print(
                 "\nof the contacts of chains not trained on {:.1f} % are found ({:.1f} % with nearer residues), of those "
                 "predicted {:.1f} % are right\n",
                 100 * scored.contacts.found, 100 * scored.contacts.all_found, 100 * scored.contacts.right);
             if (std::isfinite(scored.r2))
               fmt::print("R2 of a linear fit of the fraction of native contacts to the latent variables: {:.3f}\n", scored.r2);
             fmt::print("{}\nwritten to {}: {}\n", last, out.folder(), joined(out.written(files), ", "));
           }});
}

}  // namespace mpigrad::contacts

#pragma once
// Options that all trainers have, and functions that interpret them.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/distributed/distributed.h"
#include "comm/distributed/grid.h"
#include "framework/optim/loss_scale.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
#include "models/nn/describe.h"
#include "models/train/trainer.h"
#include "models/trainer/recipe/recipe.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::trainer {

using tool::UsageError;

// The value of --resume without an argument: the newest checkpoint in --out.
inline constexpr const char* newest_in_out = "newest";

struct Options {
  // The fields that keys set in the options of mpigrad::train(): epochs, micro-batches, clipping, early stopping, checkpoints.
  // run_training() fills in the others.
  TrainerOptions training{.fit = {.epochs = 10}, .monitor = {}};  // monitor: empty: the program's
  // data
  std::string data;
  std::string precision;          // empty: the one of dtype
  std::string dtype = "float32";  // of stored weights that are computed with; precision sets a training's
  bool flips = false, shifts = false, transpositions = false;
  double store = 0;  // GiB on each rank
  std::string read = "independent";
  std::int64_t ghosts = 0;  // planes
  // ranks
  std::string grid, communication = "overlapped";
  std::vector<std::string> grid_of{}, boundaries{};
  std::string pipeline = "one_forward_one_backward";
  bool sharded_weights = false;
  // device
  std::string device;  // launch() has chosen it already
  bool autotune = false, deterministic = false;
  // network
  double keep = -1;  // negative: the network's default
  bool batch_norm = false;
  double norm_momentum = 0.9;
  std::string statistics = "all";
  // steps
  std::int64_t batch = 8;
  std::string optimizer = "adam", schedule = "cosine";
  OptimizerOptions optimizer_options{.learning_rate = 1e-3, .momentum = 0.9};
  bool nesterov = false;                                // of sgd
  double warm_up = 0, decay_factor = 0.1, power = 0.9;  // warm_up: epochs; power: of schedule polynomial
  std::vector<double> milestones{};                     // epochs
  std::uint64_t seed = 1;
  double average_weights = 0;  // decay; 0: no averages
  // files
  std::string out, weights, resume;
  bool last_weights = false;                  // evaluate and predict: not the averaged weights of a checkpoint
  std::vector<std::string> take{}, freeze{};  // patterns of parameters' names
  double mtbf = 0;                            // hours
  bool allow_changes = false;                 // allows --resume with another schedule
  bool overwrite = false, json = false, quiet = false, profile = false, mllog = false;
  std::vector<std::string> mllog_entries;
  bool noise_scale = false;
  // commands instead of training
  bool describe = false;
  bool explain = false;   // prints the plan of the training
  std::string onnx;       // evaluate and predict: file to write the network to
  std::int64_t size = 0;  // extent of the volumes described
  // Keys that a recipe or the command line set, whatever their values.
  std::set<std::string> given{};
  std::string recipe{};  // all keys and values, as TOML
  Origin origin{};       // table [origin] of the recipe file
  std::string program{}, command{};
};

// Keys that trainers share; options.cpp has their help texts.
void add_data_keys(Keys& keys,
                   Options& options);                 // data.path unless declared; flips, transpositions, shifts
void add_reading_keys(Keys& keys, Options& options);  // data.store, data.read, data.ghosts
void add_precision_keys(Keys& keys, Options& options);
void add_grid_key(Keys& keys, Options& options);
void add_grid_keys(Keys& keys, Options& options);  // for trainings: also grid.layers, grid.sharded_weights, grid.communication
void add_norm_keys(Keys& keys, Options& options);
void add_training_keys(Keys& keys, Options& options);  // seed, optimizer, schedule
void add_checkpoint_keys(Keys& keys, Options& options);
void add_report_keys(Keys& keys, Options& options);
// All keys above, for a training on the library's loader.
void add_trainer_keys(Keys& keys, Options& options);
// Flags that are not keys: --out, --overwrite, --quiet, --json, --device.
void add_run_flags(CLI::App& app, Options& options);
// The same and --resume, --describe, --explain.
void add_training_flags(CLI::App& app, Options& options);
void add_size_flag(CLI::App& app, Options& options);  // --size: extent of the cubes for --describe

// Whether a command builds its network for the grid, with weights in blocks along an axis `filter` or `channel`.
enum class Channels : std::uint8_t { whole, split };
// Parses "sample=2,depth=2"; missing axes are 1. If only one of `filter` and `channel` is given, it is the grid's axis `channel`.
// Empty text: all ranks along `sample`. UsageError: an axis that does not exist or comes twice, an extent that is not a number,
// `filter`, `channel` or `stage` with Channels::whole.
GridExtents parse_grid(const std::string& text, int ranks, Channels channels = Channels::whole);
// How a grid of that text splits layers: with `filter` each rank computes some of a layer's output channels, with `channel` it
// reads some of the input channels, with both it does both.
nn::LayerSplit split_of(const std::string& grid);
// Parses grid.layers, "conv5-7:sample=4". UsageError: as parse_grid(); another number of ranks.
std::vector<LayerExtents> layer_grids(const Options& options, int ranks);
std::string to_string(const GridExtents& grid);
// The grid of a training, or of each stage of its pipeline; its ranks exchange halos as grid.communication says.
GridPtr grid_of_ranks(const Communicator& world, const Options& options, const GridExtents& extents);
// Throws UsageError if the grid has another number of ranks than there are.
void check_grid(const GridExtents& grid, int ranks);

DType dtype_of(const Options& options);
// The type that layers compute in; none: dtype.
std::optional<DType> compute_of(const Options& options);
// The option `precision`, or the precision of dtype.
std::string precision_of(const Options& options);
// For float16; otherwise null.
std::unique_ptr<LossScale> make_loss_scale(const Options& options, const Communicator& world);
// Sets GpuSettings of the process.
void apply_precision(const Options& options);
StatisticsOver statistics_of(const Options& options);
bool takes_momentum(const Options& options);  // true if the optimizer has momentum
std::unique_ptr<Optimizer> make_optimizer(Parameters& parameters, const Options& options);
// Averages for optimizer.average_weights; null without it.
std::unique_ptr<AveragedWeights> make_averages(Parameters& parameters, const Options& options);
// The epochs after which schedule step lowers the rate.
std::vector<double> boundaries_of(const Options& options);
// The learning rate as a function of the optimizer's step.
Schedule make_schedule(const Options& options, std::int64_t steps_per_epoch);
// Passes device options to the GPU libraries, and to communicators made from now on.
void apply_device_options(const Options& options);
// Throw UsageError if options exclude each other.
void check(const Options& options);
void check_device(const Options& options);
// Keys that have no effect if `idle`, and the reason.
struct NoEffect {
  bool idle;
  std::vector<const char*> keys;
  std::string why;
};
// Prints, on rank 0, a warning for each given key (or --overwrite) that has no effect.
void warn_of(const Options& options, const std::vector<NoEffect>& table, int rank);
// Prints which keys have no effect with --describe (`own`: the program's keys that do have one), with other
// keys, or because the training is too short.
void warn(const Options& options, const std::set<std::string>& own, int rank);

}  // namespace mpigrad::trainer

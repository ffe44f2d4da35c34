#include "examples/studies/plan/planner/search/search.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "examples/studies/plan/planner/search/estimate.h"
#include "examples/studies/plan/planner/search/layer_grids.h"
#include "examples/studies/plan/planner/search/pipeline_plans.h"
#include "framework/optim/optimizer.h"

namespace mpigrad::planner {
namespace {

std::optional<DType> compute_of(const std::string& precision) {
  if (precision == "bfloat16") return DType::bfloat16;
  if (precision == "float16") return DType::float16;
  return std::nullopt;
}

DescribeOptions options_of(const Choice& choice, const SearchOptions& o) {
  return {.grid = choice.grid,
          .split = choice.split,
          .grids = choice.grids,
          .sharded_weights = choice.sharded_weights,
          .compute = compute_of(choice.precision),
          .accumulate = choice.micro_batches,
          .optimizer = o.optimizer};
}

// The input of a micro-batch.
Shape part_of_batch(const Subject& subject, const Choice& choice, const SearchOptions& o) {
  require(choice.micro_batches >= 1 && o.batch % choice.micro_batches == 0,
          "[plan] {} samples cannot be computed in {} equal micro-batches", o.batch, choice.micro_batches);
  auto shape = subject.input;
  shape[0] = o.batch / choice.micro_batches;
  return shape;
}

}  // namespace

// Ranks that include the one with the most work. Blocks of the first ranks are the largest, and the second of three or more has
// neighbours on both sides; if one plane is left over, the first rank has it, and if layers have fewer planes than an axis has
// ranks, other ranks have them.
std::vector<int> busiest(const Choice& choice, const std::array<std::set<std::int64_t>, 3>& layers) {
  const auto& g = choice.grid;
  std::vector<std::array<int, 3>> places{{}};
  const int extents[] = {g.depth, g.height, g.width};
  for (std::size_t a = 0; a < 3; ++a) {
    const int n = extents[a];
    std::set<int> along{n > 2 ? 1 : 0};
    for (const auto extent : layers[a]) {
      if (extent % n == 1 && n > 1) along.insert(0);
      if (extent >= n) continue;
      const int apart = n / static_cast<int>(std::max<std::int64_t>(1, extent));
      for (const int place : {0, apart / 2, (apart - 1) / 2, n / 2, n / 2 - 1, n - 1}) along.insert(std::clamp(place, 0, n - 1));
    }
    std::vector<std::array<int, 3>> more;
    for (const auto& place : places)
      for (const int at : along) {
        more.push_back(place);
        more.back()[a] = at;
      }
    places = std::move(more);
  }
  std::vector<int> ranks;
  if (!choice.grids.empty()) ranks.push_back(0);
  for (const auto& place : places) ranks.push_back(((place[0] * g.height + place[1]) * g.width + place[2]) * weight_parts(g));
  constexpr std::size_t most = 12;
  if (ranks.size() > most) {
    std::vector<int> some;
    for (std::size_t i = 0; i < most; ++i) some.push_back(ranks[i * ranks.size() / most]);
    ranks = std::move(some);
  }
  return ranks;
}

namespace {

// True if the grids differ by a prime number of ranks moved from one axis to another, or by filters and channels exchanged.
bool adjacent(const Choice& a, const Choice& b) {
  const auto from = extents_of(a.grid), to = extents_of(b.grid);
  if (from == to) return true;
  int larger = 0, smaller = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] == to[i]) continue;
    int& factor = to[i] > from[i] ? larger : smaller;
    const int high = std::max(from[i], to[i]), low = std::min(from[i], to[i]);
    if (factor != 0 || high % low != 0) return false;
    factor = high / low;
  }
  const auto is_prime = [](int n) {
    for (int d = 2; d * d <= n; ++d)
      if (n % d == 0) return false;
    return n > 1;
  };
  return larger == smaller && is_prime(larger);
}

}  // namespace

StepTrace traced(const Subject& subject, const Choice& choice, const SearchOptions& o, int rank) {
  const auto net = subject.make(choice.recompute);
  auto options = options_of(choice, o);
  if (subject.objective) options.objective = [&](const Tensor& x) { return subject.objective(*net, x); };
  const auto input = part_of_batch(subject, choice, o);
  return trace_step(*net, input, options, rank, ranks_of(choice.grid), {.events = true});
}

std::function<std::unique_ptr<Optimizer>(Parameters&)> adam_on(bool gpu) {
  return [gpu](Parameters& parameters) { return std::make_unique<Adam>(parameters, AdamAttributes{.replicated = gpu}); };
}

bool Choice::operator==(const Choice& other) const { return to_string(*this) == to_string(other); }

std::string grid_text(const GridExtents& g, const nn::LayerSplit& split) {
  std::string text;
  const auto add = [&](const char* axis, int ranks) {
    if (ranks > 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis, ranks);
  };
  add("stage", g.stage), add("sample", g.sample), add("depth", g.depth), add("height", g.height), add("width", g.width);
  if (g.filter > 1) add("filter", g.filter), add("channel", g.channel);
  else add(split.split == ChannelSplit::channels ? "channel" : "filter", g.channel);
  return text.empty() ? "sample=1" : text;
}

std::string to_string(const Choice& choice) {
  auto text = grid_text(choice.grid, choice.split);
  for (const auto& own : choice.grids)
    text += fmt::format("; {}: {}", own.layers, grid_text(own.grid, own.split.value_or(choice.split)));
  if (choice.micro_batches > 1) text += fmt::format(", {} micro-batches", choice.micro_batches);
  if (choice.precision != "float32") text += ", " + choice.precision;
  if (choice.recompute) text += ", recomputed";
  if (choice.sharded_weights) text += ", weights in parts";
  return text;
}

double bytes_of_batch(const Shape& input, const SearchOptions& o) {
  const double sample = o.sample_bytes > 0 ? o.sample_bytes : 4 * static_cast<double>(input.elements());
  return sample * static_cast<double>(o.batch);
}

std::vector<Choice> grids_for(const Subject& subject, const SearchOptions& o, bool alike) {
  std::vector<Choice> choices;
  const auto& n = subject.input;
  const bool cube = alike && n[1] == n[2] && n[2] == n[3];
  const auto divisors = [](std::int64_t of) {
    std::vector<int> list;
    for (int d = 1; d <= of; ++d)
      if (of % d == 0) list.push_back(d);
    return list;
  };
  constexpr int most_weight_parts = 64;
  for (const int sample : divisors(o.ranks)) {
    if (sample > o.batch) break;
    for (const int parts : divisors(o.ranks / sample)) {
      if (parts > most_weight_parts) break;
      const int spatial = o.ranks / sample / parts;
      for (const int depth : divisors(spatial))
        for (const int height : divisors(spatial / depth)) {
          const int width = spatial / depth / height;
          if (depth > n[1] || height > n[2] || width > n[3] || (cube && (depth < height || height < width))) continue;
          Choice choice{.grid = {.sample = sample, .depth = depth, .height = height, .width = width, .channel = parts}};
          choices.push_back(choice);
          if (parts == 1) continue;
          choice.split = nn::LayerSplit(ChannelSplit::channels, "channel", true);
          choices.push_back(choice);
          for (const int filter : divisors(parts)) {
            if (filter == 1 || filter == parts) continue;
            choice.grid.filter = filter, choice.grid.channel = parts / filter;
            choices.push_back(choice);
          }
        }
    }
  }
  return choices;
}

OneRankStep one_rank_step(const Subject& subject, const Machine& machine, const std::string& precision, const SearchOptions& o) {
  OneRankStep result{.step = traced(subject, Choice{.precision = precision}, o, 0)};
  result.work = time_step(result.step, 0, machine, {.node_ranks = 1, .tf32 = precision == "tf32"}).total;
  for (int d = 0; d < 3; ++d) result.extents[static_cast<std::size_t>(d)].insert(subject.input[d + 1]);
  for (const auto& layer : result.step.layers)
    for (int d = 0; layer.out.rank() == 5 && d < 3; ++d) result.extents[static_cast<std::size_t>(d)].insert(layer.out[d + 1]);
  return result;
}

void finish(Plan& plan, const StepTrace& step, double state, const Subject& subject, const Machine& machine,
            const SearchOptions& o, const OneRankStep& whole) {
  const auto& choice = plan.choice;
  plan.fits = static_cast<double>(plan.memory) <= o.usable * machine.device.memory;
  const double batch_bytes = bytes_of_batch(subject.input, o);
  // Ranks that compute parts of layers, and stages, read the same data.
  const int copies = weight_parts(choice.grid) * choice.grid.stage;
  // Data are read in parallel with training.
  double reading = 0;
  if (machine.disk.read > 0) reading = batch_bytes / machine.disk.read;
  if (machine.disk.rank_read > 0) reading = std::max(reading, batch_bytes / o.ranks * copies / machine.disk.rank_read);
  plan.data = std::max(0.0, reading - plan.seconds);
  if (o.checkpoint_steps > 0 && machine.disk.write > 0) {
    // Replicated state is written once, in parallel with training.
    const double bytes = state * (choice.sharded_weights ? o.ranks : weight_parts(choice.grid));
    // One rank writes, or each rank its blocks.
    const double writers = choice.sharded_weights || copies > 1 ? o.ranks : 1;
    const auto& disk = machine.disk;
    const double write = disk.rank_write > 0 ? std::min(disk.write, disk.rank_write * writers) : disk.write;
    plan.checkpoints = std::max(0.0, bytes / write / static_cast<double>(o.checkpoint_steps) - plan.seconds);
  }
  plan.seconds += plan.data + plan.checkpoints;
  plan.efficiency = whole.work / (o.ranks * plan.seconds);
  plan.limits = diagnose(plan, step, subject.input, machine, o);
}

namespace {

// Evaluates a choice in several precisions with the same ops, from one trace.
std::vector<Plan> evaluate(const Subject& subject, const Machine& machine, const Choice& choice, const SearchOptions& o,
                           const std::vector<Setting>& settings) {
  if (choice.grid.stage > 1) return evaluate_pipeline(subject, machine, choice, o, settings);
  std::vector<Plan> plans(settings.size());
  std::vector<std::shared_ptr<const StepTrace>> slowest(settings.size());
  const int node_ranks = working_node_ranks(machine, ranks_of(choice.grid), o.node_ranks);
  for (const int rank : busiest(choice, settings.front().whole->extents)) {
    const auto one = std::make_shared<const StepTrace>(traced(subject, choice, o, rank));
    for (std::size_t i = 0; i < settings.size(); ++i) {
      auto& plan = plans[i];
      const auto& setting = settings[i];
      auto time =
          time_step(*one, rank, machine,
                    {.node_ranks = node_ranks, .tf32 = setting.precision == "tf32", .grid = choice.grid, .ops = setting.ops});
      plan.memory = std::max(plan.memory, one->peak_bytes);
      if (!slowest[i] || time.total > plan.time.total) plan.time = std::move(time), slowest[i] = one;
    }
  }
  for (std::size_t i = 0; i < settings.size(); ++i) {
    plans[i].choice = choice, plans[i].choice.precision = settings[i].precision;
    plans[i].seconds = plans[i].time.total;
    const auto& step = *slowest[i];
    finish(plans[i], step, static_cast<double>(step.parameter_bytes + step.optimizer_bytes), subject, machine, o,
           *settings[i].whole);
  }
  return plans;
}

}  // namespace

Plan evaluate(const Subject& subject, const Machine& machine, const Choice& choice, const SearchOptions& o,
              const OneRankStep& whole, const OpTimes* ops) {
  return evaluate(subject, machine, choice, o, {{choice.precision, &whole, ops}}).front();
}

std::vector<Plan> search(const Subject& subject, const Machine& machine, const SearchOptions& o) {
  require(!machine.levels.empty() && o.ranks <= machine.ranks(), "[plan] {} has {} ranks, {} are asked for", machine.name,
          machine.levels.empty() ? 0 : machine.ranks(), o.ranks);
  const bool alike = machine.levels.size() == 1;
  const auto choices = grids_for(subject, o, alike);
  require(!choices.empty(), "[plan] no grid of {} ranks for {} samples of {}: an axis has no more ranks than places", o.ranks,
          o.batch, subject.input);
  std::map<std::string, OneRankStep> one_rank_in;
  std::map<std::string, OpTimes> times_in;
  for (const auto& precision : o.precisions) {
    one_rank_in.try_emplace(precision, one_rank_step(subject, machine, precision, o));
    times_in.try_emplace(precision, machine, working_node_ranks(machine, o.ranks, o.node_ranks), precision == "tf32");
  }
  const auto setting = [&](const std::string& precision) {
    return Setting{precision, &one_rank_in.at(precision), &times_in.at(precision)};
  };
  // A layout for float32 is also timed for tf32, because laying out takes far longer than timing.
  std::map<std::string, Plan> timed;
  std::vector<Plan> plans;
  for (const auto& precision : o.precisions) {
    const Estimate estimate(one_rank_in.at(precision).step, machine, o, times_in.at(precision));
    const auto evaluated = [&](const Choice& choice) {
      if (auto known = timed.extract(to_string(choice)); !known.empty()) return std::move(known.mapped());
      std::vector<Setting> settings{setting(precision)};
      if (precision == "float32" && times_in.contains("tf32")) settings.push_back(setting("tf32"));
      auto found = evaluate(subject, machine, choice, o, settings);
      if (found.size() > 1) timed[to_string(found[1].choice)] = std::move(found[1]);
      return std::move(found.front());
    };
    const double room = o.usable * machine.device.memory;
    struct Candidate {
      Choice choice;
      bool hopeless = false;
      double seconds = 0;
    };
    std::vector<Candidate> candidates;
    for (auto choice : choices) {
      choice.precision = precision;
      const auto guess = estimate.of(choice);
      candidates.push_back({choice, guess.bytes > 4 * room, guess.seconds});
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
      return std::pair(a.hopeless, a.seconds) < std::pair(b.hopeless, b.seconds);
    });
    std::vector<Plan> found;
    const auto lay_out = [&](const Candidate& candidate) {
      found.push_back(evaluated(candidate.choice));
      if (found.back().fits) return;
      // Recomputation saves memory and costs time: it is tried only if nothing else fits.
      for (const bool recompute : {false, true})
        for (const bool sharded : {false, true}) {
          auto choice = candidate.choice;
          choice.recompute = recompute && subject.recomputes,
          choice.sharded_weights = sharded && choice.grid.stage == 1 && o.ranks > weight_parts(choice.grid);
          if (choice == candidate.choice || (recompute && !subject.recomputes)) continue;
          auto plan = evaluated(choice);
          if (plan.fits) found.push_back(std::move(plan));
        }
    };
    const auto best_first = [&] {
      std::stable_sort(found.begin(), found.end(), [](const Plan& a, const Plan& b) {
        return std::pair(!a.fits, a.seconds) < std::pair(!b.fits, b.seconds);
      });
    };
    auto waiting = candidates.begin();
    while (waiting != candidates.end() && (o.traced == 0 || waiting - candidates.begin() < o.traced)) lay_out(*waiting++);
    // Candidates with worse estimates that are neighbours of the best plan, as long as this leads to a better one.
    std::vector<Candidate> rest(waiting, candidates.end());
    for (int more = o.traced / 2; more > 0 && !rest.empty(); --more) {
      best_first();
      const auto next = std::find_if(rest.begin(), rest.end(), [&](const Candidate& candidate) {
        return !candidate.hopeless && adjacent(candidate.choice, found.front().choice);
      });
      if (next == rest.end()) break;
      const auto chosen = *next;
      rest.erase(next);
      lay_out(chosen);
    }
    best_first();
    // Updating parts of the weights may be faster even if it is not needed: tried on the fastest grids.
    constexpr std::size_t tried_in_parts = 4;
    std::stable_sort(found.begin(), found.end(),
                     [](const Plan& a, const Plan& b) { return std::pair(!a.fits, a.seconds) < std::pair(!b.fits, b.seconds); });
    std::vector<Plan> in_parts;
    for (std::size_t i = 0; i < std::min(tried_in_parts, found.size()); ++i) {
      auto choice = found[i].choice;
      if (choice.sharded_weights || o.ranks == weight_parts(choice.grid)) continue;
      choice.sharded_weights = true;
      if (std::any_of(found.begin(), found.end(), [&](const Plan& plan) { return plan.choice == choice; })) continue;
      auto plan = evaluated(choice);
      // Weights that are split along channels are not split further.
      if (plan.memory != found[i].memory || plan.seconds != found[i].seconds) in_parts.push_back(std::move(plan));
    }
    for (auto& plan : in_parts) found.push_back(std::move(plan));
    if (o.own_grids && o.ranks > 1)
      for (const auto& choice : with_layer_grids(subject, machine, found, o)) found.push_back(evaluated(choice));
    best_first();
    // Estimates of pipelines are compared with that of the best plan. A network that has no such stages has no such plan.
    constexpr double worth = 1.1;
    const auto best = found.front();
    const double limit = worth * best.time.total, scale = best.time.total / estimate.of(best.choice).seconds;
    for (auto& [choice, seconds] :
         pipeline_choices(subject, o, alike, [&](const Choice& grid) { return estimate.of(grid).seconds; })) {
      if (best.fits && scale * seconds > limit) continue;
      choice.precision = precision;
      try {
        lay_out({choice});
      } catch (const Error&) {
        continue;
      }
    }
    for (auto& plan : found) plans.push_back(std::move(plan));
  }
  std::stable_sort(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) {
    return std::tuple(!a.fits, a.seconds, a.time.total) < std::tuple(!b.fits, b.seconds, b.time.total);
  });
  if (plans.size() > static_cast<std::size_t>(o.best)) plans.resize(static_cast<std::size_t>(o.best));
  for (auto& plan : plans) {
    if (plan.choice.grid.stage == 1) continue;
    plan.folded = folded_seconds(subject, machine, plan.choice, o, setting(plan.choice.precision));
    break;
  }
  return plans;
}

}  // namespace mpigrad::planner

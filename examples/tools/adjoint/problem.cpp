#include "examples/tools/adjoint/problem.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "examples/tools/adjoint/operations.h"

namespace mpigrad::adjoint {
namespace {

constexpr std::int64_t largest = 1'000'000'000;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(trimmed(text.substr(0, at)));
    if (at == text.npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || stop != text.data() + text.size() || error != std::errc()) return {};
  return value;
}

std::int64_t integer(const std::string& what, std::string_view text, std::int64_t low) {
  const auto value = number<std::int64_t>(text);
  if (!value || *value < low || *value > largest)
    refuse("{}: numbers from {} to {}, separated by commas, are needed, not '{}'", what, low, largest, text);
  return *value;
}

Fields parse_fields(const char* what, const std::string& text, int ranks, bool same) {
  Fields fields;
  for (const auto field : split(text, ';')) {
    auto& values = fields.emplace_back();
    if (field.empty()) continue;
    for (const auto word : split(field, ',')) {
      const auto value = number<double>(word);
      if (!value || std::isnan(*value))
        refuse("{}: numbers separated by commas, ranks by semicolons, are needed, not '{}'", what, word);
      values.push_back(*value);
    }
  }
  // One value stands for all ranks where all must be equal.
  if (same && fields.size() == 1) fields.resize(static_cast<std::size_t>(ranks), fields[0]);
  if (fields.size() != static_cast<std::size_t>(ranks))
    refuse("{}: one field for each of the {} ranks is needed, not {} (--ranks says how many)", what, ranks, fields.size());
  if (same)
    for (int r = 1; r < ranks; ++r)
      if (fields[static_cast<std::size_t>(r)] != fields[0])
        refuse("{}: must be one value, the same on all ranks, but ranks 0 and {} differ", what, r);
  return fields;
}

std::vector<int> one_per_rank(const char* what, const std::string& text, int ranks) {
  std::vector<int> result;
  for (const auto peer : parse_list(what, text, -1)) {
    if (peer >= ranks) refuse("{}: {} is not one of {} ranks, nor -1 for MPI_PROC_NULL", what, peer, ranks);
    result.push_back(static_cast<int>(peer));
  }
  if (result.size() != static_cast<std::size_t>(ranks))
    refuse("{}: one rank for each of the {} ranks is needed, not {}", what, ranks, result.size());
  return result;
}

// The sender to each rank, from the rank to which each rank sends; or the other way round.
std::vector<int> inverse(const char* what, const std::vector<int>& peers) {
  std::vector<int> result(peers.size(), -1);
  for (std::size_t r = 0; r < peers.size(); ++r) {
    if (peers[r] < 0) continue;
    auto& slot = result[static_cast<std::size_t>(peers[r])];
    if (slot >= 0) refuse("{}: ranks {} and {} both name rank {}, which can have only one message", what, slot, r, peers[r]);
    slot = static_cast<int>(r);
  }
  return result;
}

void read_peers(const Options& o, Problem& p) {
  if (!o.dest && !o.source) refuse("--dest: {} needs the rank to which each rank sends", o.op);
  if (o.dest) p.dest = one_per_rank("--dest", *o.dest, p.ranks), p.source = inverse("--dest", p.dest);
  if (!o.source) return;
  const auto expected = p.source;
  p.source = one_per_rank("--source", *o.source, p.ranks);
  const auto dest = inverse("--source", p.source);
  if (!o.dest) p.dest = dest;
  for (std::size_t r = 0; r < p.size() && o.dest; ++r)
    if (p.source[r] != expected[r])
      refuse("--source: rank {} would receive from {}, but by --dest {} sends to it", r, p.source[r],
             expected[r] < 0 ? "no rank" : fmt::format("rank {}", expected[r]));
}

void read_graph(const Options& o, Problem& p) {
  if (!o.graph) refuse("--graph: {} needs the destinations of each rank, as 1,2;0;", o.op);
  for (const auto& list : parse_lists("--graph", *o.graph, 0)) {
    auto& destinations = p.graph.emplace_back();
    for (const auto peer : list) {
      if (peer >= p.ranks) refuse("--graph: {} is not one of {} ranks", peer, p.ranks);
      destinations.push_back(static_cast<int>(peer));
    }
  }
  if (p.graph.size() != p.size())
    refuse("--graph: one field for each of the {} ranks is needed, not {}", p.ranks, p.graph.size());
}

// Options with their default values may be given to any operation; other values only to operations that take the option.
void refuse_foreign(const Options& o, const Operation& op) {
  const auto foreign = [&](bool given, unsigned option, const char* name) {
    if (given && !(op.takes & option)) refuse("{}: {} does not take it", name, o.op);
  };
  foreign(o.counts.has_value(), takes_counts, "--counts");
  foreign(o.root != 0, takes_root, "--root");
  foreign(o.reduce != "sum", takes_reduce, "--reduce");
  if (o.reduce == "avg" && !(op.takes & takes_average)) refuse("--reduce: {} has no average; divide its sum", o.op);
  foreign(o.ties != "split", takes_reduce, "--ties");
  foreign(o.width != 1, takes_width, "--width");
  foreign(o.periodic, takes_width | takes_by, "--periodic");
  foreign(o.by != 1, takes_by, "--by");
  foreign(o.dest.has_value(), takes_peers, "--dest");
  foreign(o.source.has_value(), takes_peers, "--source");
  foreign(o.graph.has_value(), takes_graph, "--graph");
  foreign(o.target.has_value(), takes_target, "--target");
}

ReduceOp reduction(const std::string& name) {
  for (const auto op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::prod, ReduceOp::avg})
    if (name == name_of(op)) return op;
  refuse("--reduce: sum, max, min, prod or avg is needed, not '{}'", name);
}

void read_second(const Options& o, Problem& p) {
  const auto ranks = parse_list("--second", *o.second, 0);
  if (ranks.size() != 2) refuse("--second: two ranks are needed, as 0,1, not '{}'", *o.second);
  for (const auto r : ranks)
    if (r >= p.ranks) refuse("--second: {} is not one of {} ranks", r, p.ranks);
  for (std::size_t r = 0; r < p.size(); ++r)
    if (p.x[r].size() != 1) refuse("--second: for one number per rank; rank {} holds {}", r, p.x[r].size());
  p.second = {static_cast<int>(ranks[0]), static_cast<int>(ranks[1])};
}

}  // namespace

std::vector<std::int64_t> parse_list(const std::string& what, const std::string& text, std::int64_t low) {
  auto commas = text;
  std::replace(commas.begin(), commas.end(), ';', ',');
  std::vector<std::int64_t> result;
  for (const auto word : split(commas, ',')) result.push_back(integer(what, word, low));
  return result;
}

std::vector<std::vector<std::int64_t>> parse_lists(const std::string& what, const std::string& text, std::int64_t low) {
  std::vector<std::vector<std::int64_t>> result;
  for (const auto field : split(text, ';')) {
    auto& list = result.emplace_back();
    if (field.empty()) continue;
    for (const auto word : split(field, ',')) list.push_back(integer(what, word, low));
  }
  return result;
}

Problem make_problem(const Options& o, int ranks) {
  const auto& op = find_operation(o.op);  // first: without a known operation the other checks are meaningless
  if (!o.x) refuse("--x is required");
  if (!o.ybar) refuse("--ybar is required");
  refuse_foreign(o, op);
  Problem p;
  p.operation = &op;
  p.ranks = ranks;
  p.reduce = reduction(o.reduce);
  p.ties = o.ties == "first" ? Ties::first : Ties::split;
  if (o.root < 0 || o.root >= ranks) refuse("--root: {} is not one of {} ranks", o.root, ranks);
  p.root = static_cast<int>(o.root), p.width = o.width, p.periodic = o.periodic, p.by = static_cast<int>(o.by);
  p.counts = o.counts;
  p.x = parse_fields("--x", *o.x, ranks, op.same_input);
  p.ybar = parse_fields("--ybar", *o.ybar, ranks, op.same_output);
  if (op.takes & takes_peers) read_peers(o, p);
  if (op.takes & takes_graph) read_graph(o, p);
  if (op.takes & takes_target) {
    if (!o.target) refuse("--target: {} needs the rank whose window each rank accesses", o.op);
    p.target = one_per_rank("--target", *o.target, ranks);
  }
  op.shape(p);
  for (std::size_t r = 0; r < p.size(); ++r)
    if (static_cast<std::int64_t>(p.ybar[r].size()) != p.y_sizes[r])
      refuse("--ybar: rank {} has {} numbers, but {} gives it {}", r, p.ybar[r].size(), o.op, p.y_sizes[r]);
  if (o.second) read_second(o, p);
  return p;
}

}  // namespace mpigrad::adjoint

#pragma once
// The properties of a machine for cost models: the device of a rank, the links between ranks, and the storage.

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace mpigrad::planner {

// The device of one rank: a GPU, or its share of a processor.
struct Device {
  std::string name;
  double memory = 0;            // bytes
  double memory_bandwidth = 0;  // bytes per second, read and written
  // Peak floating-point operations per second, by type: float32, tf32, bfloat16, float16, float64.
  std::map<std::string, double> flops{};
  // Fractions of these peaks that ops of a kind reach, from 0 to 1: "conv", "linear", "other"; of the bandwidth: "memory".
  std::map<std::string, double> efficiency{};
  double launch = 0;  // seconds that every op costs
  bool gpu = false;   // on GPUs every rank makes all of the optimizer's updates (framework/optim/division.h)
};

// A level of the network, starting with the innermost: the ranks that it connects, and the cost of a message between two of them.
struct Level {
  std::string name;
  int ranks = 0;         // in one unit of this level, such as a node; last level: all ranks
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes per second of one rank in one direction while others send nothing
  // Number of ranks that share that bandwidth when all of them send at once; 1: each has its own link.
  double sharing = 1;
};

struct Disk {
  double read = 0, write = 0;            // bytes per second, all ranks together; 0: unknown
  double rank_read = 0, rank_write = 0;  // at most by one rank; 0: no separate limit
};

// A measurement of `calibrate` while `ranks` ranks of a node worked at once.
struct MeasuredOp {
  std::string op, in, out;  // operands as signature() has them (examples/studies/plan/planner/machine/op_times.h)
  int ranks = 1;
  double flops = 0, bytes = 0, seconds = 0;
};
// A call of `ranks` ranks of a node, and its times for messages of these sizes: an MPI collective (bytes contributed by a rank),
// or "exchange", a message each way between two ranks.
struct MeasuredCall {
  std::string call;
  int ranks = 2;
  std::vector<std::pair<double, double>> points{};  // bytes, seconds; ascending, at least two
  // Linear interpolation between the points; beyond the last by the slope of the last two.
  double seconds(double bytes) const;
};

struct Machine {
  std::string name;
  Device device{};
  std::vector<Level> levels{};  // at least one
  Disk disk{};
  std::vector<MeasuredOp> ops{};
  std::vector<MeasuredCall> calls{};
  // True if messages travel while ranks compute, as with GPUs with NCCL and MPI libraries with a progress thread.
  bool overlaps = true;
  // The sources of numbers, by their path in the file, "device.memory" or "level.NVLink.latency".
  std::map<std::string, std::string> sources{};

  // The innermost level that connects two ranks, or all ranks of a list, counted from 0.
  int level_between(int a, int b) const;
  int ranks() const { return levels.back().ranks; }
};

// Reads a TOML file; examples/machines/README.md lists the keys. Errors, with file and line: not TOML, a key that is unknown,
// missing, or of another type, an impossible value, a number without a source.
Machine read_machine(const std::filesystem::path& path);
// The same from text; `name` replaces the file's name in errors.
Machine parse_machine(const std::string& text, const std::string& name);
std::string to_toml(const Machine& machine);

}  // namespace mpigrad::planner

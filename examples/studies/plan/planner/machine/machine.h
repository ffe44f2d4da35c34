#pragma once
// What cost models know of a machine: what one rank computes with, the links between ranks, and its storage.

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace mpigrad::planner {

// What one rank computes with: a GPU, or its share of a processor.
struct Device {
  std::string name;
  double memory = 0;            // bytes
  double memory_bandwidth = 0;  // bytes per second, read and written
  // Peak floating-point operations per second, by type: float32, tf32, bfloat16, float16, float64.
  std::map<std::string, double> flops{};
  // What ops of a kind reach of these peaks, from 0 to 1: "conv", "linear", "other"; of the bandwidth: "memory".
  std::map<std::string, double> efficiency{};
  double launch = 0;  // seconds that every op costs
};

// A level of the network, from the innermost on: ranks that it joins, and a message between two of them.
struct Level {
  std::string name;
  int ranks = 0;         // that share one unit of this level, such as a node; of the last level: all of the machine
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes per second that one rank sends, in one direction, while others are silent
  // Ranks that share that bandwidth when all of them send at once: 1, each has its own link.
  double sharing = 1;
};

struct Disk {
  double read = 0, write = 0;            // bytes per second of all ranks together; 0: unknown
  double rank_read = 0, rank_write = 0;  // at most by one rank; 0: no limit of its own
};

// What `calibrate` has measured while `ranks` ranks of a node worked at once.
struct MeasuredOp {
  std::string op, in, out;  // operands as signature() has them (examples/studies/plan/planner/machine/op_times.h)
  int ranks = 1;
  double flops = 0, bytes = 0, seconds = 0;
};
// A call of `ranks` ranks of a node, and what it took for messages of these sizes: an MPI collective, bytes as a rank hands them
// in, or "exchange", a message each way between two ranks.
struct MeasuredCall {
  std::string call;
  int ranks = 2;
  std::vector<std::pair<double, double>> points{};  // bytes, seconds; ascending, at least two
  // By straight lines between the points, beyond the last by the slope of the last two.
  double seconds(double bytes) const;
};

struct Machine {
  std::string name;
  Device device{};
  std::vector<Level> levels{};  // at least one
  Disk disk{};
  std::vector<MeasuredOp> ops{};
  std::vector<MeasuredCall> calls{};
  // Whether messages travel while ranks compute: GPUs with NCCL and MPI libraries with a thread of progress do.
  bool overlaps = true;
  // Where numbers come from, by their path in the file, "device.memory" or "level.NVLink.latency".
  std::map<std::string, std::string> sources{};

  // The innermost level that joins two ranks, or all of a list, counted from 0.
  int level_between(int a, int b) const;
  int ranks() const { return levels.back().ranks; }
};

// A TOML file; examples/machines/README.md tells the keys. Errors, with file and line: what is no TOML, a key that is unknown,
// missing, or has another type or a value that cannot be, a number without a source.
Machine read_machine(const std::filesystem::path& path);
// The same, as text; `name` stands in errors for the file's.
Machine parse_machine(const std::string& text, const std::string& name);
std::string to_toml(const Machine& machine);

}  // namespace mpigrad::planner

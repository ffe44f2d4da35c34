// Writes machines as TOML text without toml++, which would sort the keys.

#include <fmt/format.h>

#include <string_view>

#include "examples/studies/plan/planner/machine/machine.h"

namespace mpigrad::planner {
namespace {

std::string escaped(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\', result += c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) result += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    else result += c;
  }
  return result + '"';
}

// fmt writes as many digits as are needed to read the same double again.
void put(std::string& text, std::string_view key, double value) { text += fmt::format("{} = {}\n", key, value); }
void put(std::string& text, std::string_view key, const std::string& value) {
  text += fmt::format("{} = {}\n", key, escaped(value));
}

}  // namespace

std::string to_toml(const Machine& machine) {
  std::string text;
  put(text, "name", machine.name);
  text += fmt::format("overlaps = {}\n\n[device]\n", machine.overlaps);
  const auto& device = machine.device;
  put(text, "name", device.name);
  put(text, "memory", device.memory);
  put(text, "memory_bandwidth", device.memory_bandwidth);
  put(text, "launch", device.launch);
  if (device.gpu) text += "gpu = true\n";
  text += "\n[device.flops]\n";
  for (const auto& [type, flops] : device.flops) put(text, type, flops);
  if (!device.efficiency.empty()) text += "\n[device.efficiency]\n";
  for (const auto& [kind, efficiency] : device.efficiency) put(text, kind, efficiency);
  for (const auto& level : machine.levels) {
    text += "\n[[level]]\n";
    put(text, "name", level.name);
    text += fmt::format("ranks = {}\n", level.ranks);
    put(text, "latency", level.latency);
    put(text, "bandwidth", level.bandwidth);
    if (level.sharing != 1) put(text, "sharing", level.sharing);
  }
  const auto& disk = machine.disk;
  if (disk.read != 0 || disk.write != 0 || disk.rank_read != 0 || disk.rank_write != 0) text += "\n[disk]\n";
  if (disk.read != 0) put(text, "read", disk.read);
  if (disk.write != 0) put(text, "write", disk.write);
  if (disk.rank_read != 0) put(text, "rank_read", disk.rank_read);
  if (disk.rank_write != 0) put(text, "rank_write", disk.rank_write);
  if (!machine.ops.empty() || !machine.calls.empty()) text += "\n[measured]\n";
  // One line for each, because there are thousands.
  if (!machine.ops.empty()) {
    text += "ops = [\n";
    for (const auto& op : machine.ops)
      text += fmt::format("  {{op = {}, in = {}, out = {}, ranks = {}, flops = {}, bytes = {}, seconds = {}}},\n", escaped(op.op),
                          escaped(op.in), escaped(op.out), op.ranks, op.flops, op.bytes, op.seconds);
    text += "]\n";
  }
  if (!machine.calls.empty()) {
    text += "calls = [\n";
    for (const auto& call : machine.calls) {
      text += fmt::format("  {{call = {}, ranks = {}, points = [", escaped(call.call), call.ranks);
      for (const auto& [bytes, seconds] : call.points) text += fmt::format("[{}, {}], ", bytes, seconds);
      text += "]},\n";
    }
    text += "]\n";
  }
  text += "\n[sources]\n";
  for (const auto& [path, source] : machine.sources) text += fmt::format("{} = {}\n", escaped(path), escaped(source));
  // Throws here, not at the reader, if the text cannot be read.
  parse_machine(text, machine.name);
  return text;
}

}  // namespace mpigrad::planner

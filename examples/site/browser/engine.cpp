// The adjoint calculator and the halo planner for browsers, with options and answers as JSON. The ranks take turns on the only
// thread of a page.

#include <nlohmann/json.hpp>

#include "examples/site/browser/turns.h"
#include "examples/tools/adjoint/calculate.h"
#include "examples/tools/adjoint/operations.h"
#include "examples/tools/halo/plan.h"

namespace {

using namespace mpigrad;
using Json = nlohmann::ordered_json;

constexpr int most_ranks_here = 16;

// The returned text is valid until the next call.
const char* answer(const std::function<Json()>& f) {
  static std::string text;
  Json document;
  try {
    document = f();
  } catch (const std::exception& error) {
    document = {{"error", error.what()}};
  }
  text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.c_str();
}

// A missing or empty entry counts as not given.
void take(const Json& from, const char* name, std::optional<std::string>& value) {
  if (from.contains(name) && !from[name].get<std::string>().empty()) value = from[name].get<std::string>();
}
template <class T>
void take(const Json& from, const char* name, T& value) {
  if (from.contains(name)) value = from[name].get<T>();
}

Json calculate(const Json& asked) {
  adjoint::Options o;
  take(asked, "op", o.op), take(asked, "reduce", o.reduce), take(asked, "ties", o.ties), take(asked, "root", o.root);
  take(asked, "width", o.width), take(asked, "by", o.by), take(asked, "periodic", o.periodic);
  for (const auto& [name, value] :
       {std::pair{"counts", &o.counts}, {"dest", &o.dest}, {"source", &o.source}, {"graph", &o.graph}, {"target", &o.target}})
    take(asked, name, *value);
  o.x = asked.value("x", ""), o.ybar = asked.value("ybar", "");  // may be empty: a rank that holds nothing
  const int ranks = asked.value("ranks", 3);
  if (ranks < 1 || ranks > most_ranks_here) adjoint::refuse("ranks: from 1 to {} here", most_ranks_here);
  const auto problem = adjoint::make_problem(o, ranks);
  Json document;
  run_in_turns(ranks, [&](std::shared_ptr<Transport> transport) {
    const Communicator world(transport);
    const auto result = adjoint::calculate(problem, world, true);
    if (world.rank() == 0)
      document = {{"result", adjoint::to_json(problem, result)},
                  {"text", adjoint::to_text(problem, result)},
                  {"picture", adjoint::to_svg(problem, result)}};
  });
  return document;
}

Json plan(const Json& asked) {
  halo::Options o;
  take(asked, "extent", o.extent), take(asked, "ranks", o.ranks), take(asked, "outputs", o.outputs),
      take(asked, "transposed", o.transposed);
  take(asked, "output_padding", o.output_padding), take(asked, "kernel", o.window.kernel), take(asked, "stride", o.window.stride);
  take(asked, "padding", o.window.low), take(asked, "dilation", o.window.dilation);
  if (asked.contains("input_blocks") && !asked["input_blocks"].get<std::string>().empty())
    o.input_blocks = halo::parse_blocks(asked["input_blocks"]);
  const auto result = halo::make_plan(o);
  return {
      {"result", halo::to_json(result, o.transposed)}, {"text", halo::to_text(result, o)}, {"picture", halo::to_svg(result, o)}};
}

// The options of each operation, for the form.
Json operations() {
  Json list = Json::array();
  for (const auto& each : adjoint::operations())
    list.push_back({{"name", each.name}, {"takes", each.takes}, {"same_input", each.same_input}});
  return list;
}

}  // namespace

extern "C" {
const char* mpigrad_adjoint(const char* options) {
  return answer([&] { return calculate(Json::parse(options)); });
}
const char* mpigrad_halo(const char* options) {
  return answer([&] { return plan(Json::parse(options)); });
}
const char* mpigrad_operations() { return answer(operations); }
}

// Shows which inputs each rank needs, and from which rank, when a convolution or a pooling is split over ranks.
//
//   build/examples/halo --extent 10 --ranks 2 --kernel 5 --stride 2 --padding 2
//
// One dimension; in several dimensions the box of a rank is the product of the windows. Needs no launcher and moves no data.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>

#include "examples/tools/halo/plan.h"

namespace mpigrad::halo {
namespace {

int run(int argc, char** argv) {
  CLI::App app("Shows which inputs each rank needs, and from which ranks, for its outputs of a window that slides over a line.",
               "halo");
  app.footer("Negative left or right: inputs of the own block that are not needed. Negative crop: zeros that are added.");
  Options o;
  const auto number = [&](const char* name, std::int64_t& value, std::int64_t low, const char* text) {
    return app.add_option(name, value, text)->check(tool::whole_number(low, largest));
  };
  number("--extent", o.extent, 1, "number of inputs")->required();
  app.add_option("--ranks", o.ranks, "ranks that share them")->required()->check(tool::whole_number(1, most_ranks));
  number("--kernel", o.window.kernel, 1, "taps of the window")->required();
  number("--stride", o.window.stride, 1, "distance of windows (transposed: of inputs)")->capture_default_str();
  number("--padding", o.window.low, 0, "on each side (transposed: outputs taken away)")->capture_default_str();
  number("--dilation", o.window.dilation, 1, "distance of taps")->capture_default_str();
  std::string blocks;
  const auto* given =
      app.add_option("--input-blocks", blocks, "inputs of each rank, as 5,0,2; default: balanced, the first ranks one more")
          ->type_name("INT,INT,...");
  app.add_option("--outputs", o.outputs, "the rank that computes an output: by equal blocks, or the owner of the window's centre")
      ->check(CLI::IsMember({"balanced", "centred"}))
      ->capture_default_str();
  auto* transposed =
      app.add_flag("--transposed", o.transposed, "the transposed window: (n - 1) s - 2p + d (k - 1) + op + 1 outputs");
  number("--output-padding", o.output_padding, 0, "op, more outputs on the right")->needs(transposed)->capture_default_str();
  app.add_flag("--json", o.json, "print one JSON document and nothing else");
  std::string picture;
  app.add_option("--picture", picture, "an SVG file: for each rank its inputs, in the colour of the rank that has them")
      ->type_name("FILE");
  if (const int code = tool::parse(app, argc, argv); code >= 0) return code;
  return tool::finish(app, [&] {
    if (given->count() > 0) o.input_blocks = parse_blocks(blocks);
    const auto plan = make_plan(o);
    if (!picture.empty()) tool::write_text(picture, to_svg(plan, o));
    if (o.json) fmt::print("{}\n", tool::to_text(to_json(plan, o.transposed)));
    else fmt::print("{}", to_text(plan, o));
    return 0;
  });
}

}  // namespace
}  // namespace mpigrad::halo

int main(int argc, char** argv) { return mpigrad::halo::run(argc, argv); }

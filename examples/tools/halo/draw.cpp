// The plan as text: for every rank a line of inputs, a line of outputs below it, and a sentence.

#include <algorithm>

#include "examples/tools/halo/plan.h"
#include "framework/base/joined.h"

namespace mpigrad::halo {
namespace {

constexpr std::int64_t most_columns = 64;

// The common axis of all lines: inputs for a window, outputs for a transposed window. Items of the other kind are drawn at the
// centre of their window, close to the items that they depend on. On an axis longer than the screen, a column covers several
// positions.
struct Axis {
  std::int64_t begin = 0, end = 0;
  std::int64_t scale = 1;  // positions in a column

  Axis(std::int64_t first, std::int64_t last) : begin(first), end(last) {
    for (std::int64_t power = 1; columns() > most_columns; power *= 10)  // 1, 2, 5, 10, 20, ...
      for (const int factor : {1, 2, 5})
        if (columns() > most_columns) scale = factor * power;
  }
  std::int64_t columns() const { return (end - begin + scale - 1) / scale; }
  std::size_t column(std::int64_t position) const { return static_cast<std::size_t>((position - begin) / scale); }
};

// Positions `first + i * step` of items on an axis.
struct Places {
  std::int64_t first = 0, step = 1;
  std::int64_t operator()(std::int64_t i) const { return first + i * step; }
};

class Line {
 public:
  Line(const Axis& axis, char symbol) : axis_(axis), text_(static_cast<std::size_t>(axis.columns()), symbol) {}
  // Later symbols cover earlier ones.
  void paint(std::int64_t begin, std::int64_t end, char symbol, Places places = {}) {
    if (begin >= end) return;
    if (axis_.scale > 1) {  // columns between two items would look like holes
      const auto from = axis_.column(places(begin)), to = axis_.column(places(end - 1)) + 1;
      std::fill(text_.begin() + static_cast<std::ptrdiff_t>(from), text_.begin() + static_cast<std::ptrdiff_t>(to), symbol);
    } else {
      for (auto i = begin; i < end; ++i) text_[axis_.column(places(i))] = symbol;
    }
  }
  std::string text() const { return text_.substr(0, text_.find_last_not_of(' ') + 1); }

 private:
  const Axis& axis_;
  std::string text_;
};

std::string ruler(const Axis& axis) {
  const std::int64_t step = axis.scale * (fmt::formatted_size("{}", axis.end) < 9 ? 10 : 20);
  std::string text;
  for (std::int64_t position = 0; position < axis.end; position += step) {
    text.resize(axis.column(position), ' ');
    text += fmt::format("{}", position);
  }
  return text;
}

// "no inputs", "input 3", "inputs 3-5"
std::string range(const char* name, std::int64_t begin, std::int64_t end) {
  if (begin == end) return fmt::format("no {}s", name);
  if (begin + 1 == end) return fmt::format("{} {}", name, begin);
  return fmt::format("{}s {}-{}", name, begin, end - 1);
}

std::string messages(const char* verb, const char* towards, const std::vector<Receive>& list) {
  std::vector<std::string> words;
  for (const auto& each : list) words.push_back(fmt::format("{} {} rank {}", each.count, towards, each.from));
  return fmt::format("{} {}", verb, words.empty() ? "nothing" : joined(words, ", "));
}

std::string cropping(const RankPlan& rank) {
  const auto side = [](std::int64_t crop, const char* name) {
    if (crop < 0) return fmt::format("gets {} zero{} added on the {}", -crop, crop == -1 ? "" : "s", name);
    return fmt::format("loses {} on the {}", crop, name);
  };
  return fmt::format("; the local result of {} {} and {}", rank.local_outputs, side(rank.crop_left, "left"),
                     side(rank.crop_right, "right"));
}

std::string sentence(const Plan& plan, std::size_t r, bool transposed, const std::vector<Receive>& sends) {
  auto text = fmt::format("rank {} owns {}, ", r, range("input", plan.input_cuts[r], plan.input_cuts[r + 1]));
  if (const auto& rank = plan.ranks[r]) {
    const auto& part = rank->part;
    text += fmt::format("makes {}, needs {} (left {}, right {})", range("output", part.out_begin, part.out_end),
                        range("input", part.begin, part.end), rank->left, rank->right);
    if (!transposed) text += fmt::format(" and padding of {} on the left, {} on the right", rank->pad_left, rank->pad_right);
    text += "; " + messages("receives", "from", rank->receive);
    if (transposed) text += cropping(*rank);
  } else {
    text += "makes no outputs and needs nothing";
  }
  return text + "; " + messages("sends", "to", sends) + ".";
}

}  // namespace

std::string to_text(const Plan& plan, const Options& o) {
  const auto& w = o.window;
  const auto n = plan.input_cuts.back(), outputs = plan.output_cuts.back();
  const auto reach = w.dilation * (w.kernel - 1), padding = w.low;
  auto text = fmt::format("{} inputs, {}kernel {}, stride {}, padding {}, dilation {}", n, o.transposed ? "transposed " : "",
                          w.kernel, w.stride, padding, w.dilation);
  if (o.transposed) text += fmt::format(", output padding {}", o.output_padding);
  text += fmt::format(": {} outputs, {}, on {} rank{}\n\n", outputs, o.outputs, o.ranks, o.ranks == 1 ? "" : "s");

  const Places centres{reach / 2 - padding, w.stride};
  const Places inputs = o.transposed ? centres : Places{}, made = o.transposed ? Places{} : centres;
  const Axis axis(-padding,
                  std::max(o.transposed ? outputs : n, ((o.transposed ? n : outputs) - 1) * w.stride - padding + reach + 1));
  const auto label_width = fmt::formatted_size("rank {}", o.ranks - 1);
  const std::string indent(label_width + 2, ' ');
  if (axis.scale > 1) text += fmt::format("{}one column is {} {}\n", indent, axis.scale, o.transposed ? "outputs" : "inputs");
  text += indent + ruler(axis) + "\n";

  std::vector<std::vector<Receive>> sends(plan.ranks.size());
  for (std::size_t r = 0; r < plan.ranks.size(); ++r)
    if (plan.ranks[r])
      for (const auto& each : plan.ranks[r]->receive)
        sends[static_cast<std::size_t>(each.from)].push_back({static_cast<int>(r), each.count});

  std::string sentences;
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const auto own_begin = plan.input_cuts[r], own_end = plan.input_cuts[r + 1];
    Line upper(axis, ' '), lower(axis, ' ');
    upper.paint(0, n, '.', inputs);
    upper.paint(own_begin, own_end, '-', inputs);
    if (const auto& rank = plan.ranks[r]) {
      const auto& part = rank->part;
      upper.paint(std::max(part.begin, own_begin), std::min(part.end, own_end), '#', inputs);
      upper.paint(part.begin, std::min(part.end, own_begin), 'o', inputs);
      upper.paint(std::max(part.begin, own_end), part.end, 'o', inputs);
      if (o.transposed) {
        const auto first = part.begin * w.stride - padding;
        lower.paint(first, first + rank->local_outputs, 'x');
      } else {
        const auto a = part.out_begin * w.stride - padding, b = (part.out_end - 1) * w.stride - padding + reach + 1;
        upper.paint(a, std::min<std::int64_t>(b, 0), 'p');
        upper.paint(std::max(a, n), b, 'p');
      }
      lower.paint(part.out_begin, part.out_end, '^', made);
    }
    text += fmt::format("{:<{}}  {}\n", fmt::format("rank {}", r), label_width, upper.text());
    if (plan.ranks[r]) text += indent + lower.text() + "\n";
    sentences += sentence(plan, r, o.transposed, sends[r]) + "\n";
  }
  text += "\n# own and needed, - own and not needed, o received, . not needed";
  text += o.transposed ? ", ^ made, x cropped\n\n" : ", p padding, ^ made, below the centre of its window\n\n";
  return text + sentences;
}

}  // namespace mpigrad::halo

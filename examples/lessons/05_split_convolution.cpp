// Lesson 5: a convolution split in space.
//
//   build/examples/lessons/05_split_convolution         four ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/05_split_convolution
//
// A volume too large for one memory is cut into slabs along its depth, one per rank; the kernel w is replicated. Rank r's planes
// of the result need some planes of its neighbours. With E, the exchange that fetches them, and R, which copies the kernel to all
// ranks, the layer is
//
//   y = C(E x, R w),        C: every rank's own, local convolution, linear in x and in w,
//
// and therefore backwards, with the two transposes C_x and C_w that every convolution library has,
//
//   xbar = E^T C_x(ybar, R w):       cotangents of planes from a neighbour return there and are added (lesson 4),
//   wbar = R^T C_w(E x, ybar):       the kernels' cotangents are summed over ranks (lesson 3).
//
// No line of this backward pass is written by hand: it follows from the composition. Hewett and Grady (arXiv 2006.03108) build
// layers from such operators and their adjoints by hand; here the tape does. build/examples/halo draws the planes that are sent
// for any kernel, stride, padding and dilation:
//
//   build/examples/halo --extent 12 --ranks 4 --kernel 5 --stride 2 --padding 2 --outputs centred

#include "examples/lessons/lesson.h"
using namespace lesson;

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 4, [](Session& session) {
    const Shape shape{1, 12, 6, 6, 2}, kernel{3, 5, 3, 3, 2};  // [N, D, H, W, C] and [K, kd, kh, kw, C]
    const ConvAttributes attributes{.stride = {2, 1, 1}, .padding = {2, 1, 1}};
    const auto slabs = activation_layout(session.grid({.depth = session.ranks()}), shape);

    // Random numbers belong to positions in the whole tensor: each rank draws those of its planes.
    const auto normal = [](const Shape& s, std::uint64_t key, const LayoutPtr& layout = {}) {
      return random_normal(s, {.key = key}, 0, 1, DType::float64, layout);
    };
    const Tensor x = normal(shape, 1, slabs), w = normal(kernel, 2), whole_x = normal(shape, 1);
    const auto loss = [](const Tensor& y) { return sum(y * tanh(y)); };

    // One rank, the whole volume.
    Tape whole;
    const Tensor whole_y = conv(whole_x, w, attributes);
    const Tensor whole_loss = loss(whole_y);
    const auto expected = whole.gradient(whole_loss, {whole_x, w});

    // All ranks, a slab each.
    Tape watch, tape;
    const Tensor y = conv(x, w, attributes);
    const Tensor share = loss(y);
    say(session, "forwards:  {}", names(tape.entries()));
    const auto before = watch.entries().size();
    const auto found = tape.gradient(share, {x, w});
    say(session, "backwards: {}\n", names(std::span(watch.entries()).subspan(before)));

    const auto part = [](const Tensor& all, const Tensor& mine) {  // the planes of `all` that this rank has
      const Box box = mine.layout()->box();
      return slice(all, 1, box.begin[1], box.end[1]);
    };
    const auto planes = [](const Tensor& mine) {
      const Box box = mine.layout()->box();
      return mine.dim(1) == 0 ? std::string("  none  ") : fmt::format("{:2} to {:2}", box.begin[1], box.end[1] - 1);
    };
    say_in_turn(session, fmt::format("rank {}: planes {} of x, {} of y; |xbar| {:10.6f}, |wbar| {:.6f}\n", session.rank(),
                                     planes(x), planes(y), norm(found[0].without_layout()), norm(found[1])));
    say(session, "one rank: all planes                    |xbar| {:10.6f}, |wbar| {:.6f}", norm(expected[0]), norm(expected[1]));

    const double sum_of_shares = total(share);
    claim(session, std::abs(sum_of_shares - whole_loss.item()) < 1e-12 * whole_loss.item(),
          "the shares add up to the loss, {:.9f}", sum_of_shares);
    claim(session, distance(y.without_layout(), part(whole_y, y)) < 1e-12, "y is that of one rank, plane by plane");
    claim(session, distance(found[0].without_layout(), part(expected[0], x)) < 1e-12,
          "so is the cotangent of x, beside cuts too");
    claim(session, distance(found[1], expected[1]) < 1e-12 * norm(expected[1]),
          "the cotangent of w is that of one rank, on every rank");
  });
}

// Lesson 6: isend and wait, and overlap in reverse.
//
//   build/examples/lessons/06_overlap              three ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/06_overlap
//
// A non-blocking message is two calls with room for work between them: isend starts it, wait ends it. Backwards the order of all
// calls is reversed, and so are the roles:
//
//   forwards, downwards                     backwards, upwards
//   irecv   starts to receive y             completes sending ybar       (wait)
//   isend   starts to send x                completes receiving xbar     (wait)
//   work    overlaps with the messages      its adjoint overlaps with the opposite messages
//   wait    x is sent                       starts to receive xbar       (irecv)
//   wait    y has arrived                   starts to send ybar          (isend)
//
// The cotangent of a value is complete as soon as the replay reaches the wait that delivered it; then it can be sent, and it must
// have arrived when the replay reaches the isend. A library in which only isend is differentiable, with a wait that does nothing
// backwards, must move the whole message at one point and overlaps nothing. (J. Utke et al., "Toward adjoinable MPI", 2009,
// derive these pairs.) In the ring below rank r sends x_r to rank r + 1, works, and multiplies the work by the received value.

#include "examples/lessons/lesson.h"
using namespace lesson;

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 3, [](Session& session) {
    const auto& comm = session.world();
    const int P = session.ranks(), next = (session.rank() + 1) % P, previous = (session.rank() + P - 1) % P;
    const Tensor x =
        random_normal({1000}, {.key = 1, .stream = static_cast<std::uint64_t>(session.rank())}, 0, 1, DType::float64);

    Tape watch;  // records the recording of the inner tape, and then its replay
    Tape tape;
    Request incoming = irecv(x.type(), comm, previous);
    Request outgoing = isend(x, comm, next);
    const Tensor work = tanh(x);  // any amount of work that needs neither message
    wait(outgoing);
    const Tensor y = wait(incoming);
    const Tensor share = sum(y * work);
    const std::vector<Tape::Entry> forward = tape.entries();
    const Tensor gradient = tape.gradient(share, {x})[0];
    const auto backward = std::span(watch.entries()).subspan(forward.size());

    const auto list = [&](const char* title, std::span<const Tape::Entry> entries) {
      say(session, "{}", title);
      for (std::size_t i = 0; i < entries.size(); ++i)
        say(session, "  {:2}  {}{}", i + 1, entries[i].communicates ? "" : "        . ", entries[i].name);
    };
    list("rank 0, forwards (communication on the left, local work after a dot):", forward);
    list("rank 0, backwards, as it ran:", backward);

    // The adjoint of the work, tanh' and its product, lies between the start of the opposite messages and their completion.
    std::size_t started = 0, completed = backward.size(), work_between = 0;
    for (std::size_t i = 0; i < backward.size(); ++i)
      if (backward[i].name == "irecv" || backward[i].name == "isend") started = i;
    for (std::size_t i = backward.size(); i-- > 0;)
      if (backward[i].name == "wait") completed = i;
    for (std::size_t i = started; i < completed; ++i) work_between += backward[i].communicates ? 0 : 1;
    claim(session, names(forward, true) == "irecv isend wait wait", "forwards: irecv isend wait wait");
    claim(session, names(backward, true) == "isend irecv wait wait", "backwards: isend irecv wait wait");
    claim(session, work_between > 0, "{} local operations run while the cotangents travel", work_between);

    // L = sum_r <x_{r-1}, tanh x_r>, so that dL/dx_r = tanh x_{r+1} + x_{r-1} (1 - tanh^2 x_r).
    const Tensor by_hand = shift(tanh(x), comm, -1) + shift(x, comm, 1) * (1 - square(tanh(x)));
    claim(session, distance(gradient, by_hand) < 1e-14, "the gradient is tanh x_(r+1) + x_(r-1) (1 - tanh^2 x_r)");
  });
}

#pragma once
// How often checkpoints pay.

namespace mpigrad {

// Seconds of training between two checkpoints that cost `cost` seconds each, for which the time lost to checkpoints and to what
// failures undo is least, where failures come at random, every `mtbf` seconds on average: Young's (1974) sqrt(2 cost mtbf) with
// the next terms of Daly (2006), doi:10.1016/j.future.2004.11.016, equation 37. Errors: numbers that are not positive.
double best_checkpoint_interval(double cost, double mtbf);

}  // namespace mpigrad

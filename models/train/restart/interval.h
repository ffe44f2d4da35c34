#pragma once
// The best interval between checkpoints.

namespace mpigrad {

// The interval of training, in seconds, between checkpoints of `cost` seconds each that minimises the time lost to checkpoints
// and to repeated work after random failures, one per `mtbf` seconds on average: Young's (1974) sqrt(2 cost mtbf) with the next
// terms of Daly (2006), doi:10.1016/j.future.2004.11.016, equation 37. Errors: numbers that are not positive.
double best_checkpoint_interval(double cost, double mtbf);

}  // namespace mpigrad

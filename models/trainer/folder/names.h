#pragma once
// The names of a training's files, and the exit code of one that is to be resumed.

namespace mpigrad::trainer {

inline constexpr const char *weights_file = "weights.h5", *summary_file = "summary.json", *trace_file = "trace.json",
                            *mllog_file = "mllog.txt";
// The exit code of a training that a limit or a signal has ended and that --resume continues from its newest checkpoint
// (EX_TEMPFAIL).
inline constexpr int to_be_resumed = 75;

}  // namespace mpigrad::trainer

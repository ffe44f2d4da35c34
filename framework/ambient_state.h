#pragma once
// All state of the library that no object holds: per thread (T) or per process (P), and why it is not an argument. A rank is a
// thread or a process, so state of a rank is stored per thread. tests/structure.py compares this list with the sources.
//
// Set by a program, for the lifetime of an object or until it is set again:
//   framework/engine/kept_memory.cpp    hashes_foreign     P  MPIGRAD_CHECKS=memory, read by comm/
//   framework/engine/backward.cpp       active             T  tapes that record: the innermost sees every op
//   framework/engine/apply.cpp          cost_log           T  the innermost CostLog, likewise
//   framework/engine/apply.cpp          observer           T  the innermost OpObserver, likewise
//   framework/engine/memo.cpp           collector          T  the innermost NewMemos: what a step of a loop memoises
//   framework/engine/buckets.cpp        innermost_norm     T  the LocalGradientNorm that sums squares of gradients
//   framework/tensor/storage.cpp        thread_device      T  UseDevice: where new tensors are made
//   framework/tensor/tensor.cpp         halo_dimension     T  HaloRoom: whether results get room for planes of other ranks
//   models/nn/layers.cpp                layer_trace        T  the LayerTrace that is told which layers run
//   models/nn/layers.cpp                no_batch_statistics T why norms may not use batch statistics
//   ops/recompute.cpp                   innermost, depth   T  the recompute() that runs
//   ops/loss/loss.cpp                   innermost_labels   T  labels of all micro-batches of a step, by which means divide
//   ops/gpu_settings.cpp                mutex, settings, tuning P  set_gpu_settings(): how GPUs round and choose kernels
//   framework/optim/optimizer.cpp       step_hook          P  callback after optimizer steps; framework/ knows no ranks
//   models/train/restart/interruption.cpp first_signal, seen, ending, asked P signals are delivered to the process
//   models/train/restart/interruption.cpp before_report, users_mutex, users P likewise
//   comm/transport/watch/whereabouts.cpp noted_count, noted, wanted P where a signal found the main thread
//   ops/backends/cudnn/tuning_file.cpp  file               P  MPIGRAD_TUNING_FILE: kernels that were timed
//
// Read by error messages and watchdogs in lower layers:
//   framework/base/op_scope.cpp         running_op         T  the op that runs
//   framework/engine/activity.cpp       end_asked          P  whether a signal has asked for the end
//   framework/engine/activity.cpp       activity           T  activity flags of a rank
//   framework/engine/apply.cpp          recorded           T  whether the running call is recorded
//   framework/engine/backward.cpp       replay_here        T  the entry whose derivative is computed
//   framework/engine/backward.cpp       frozen             T  parameters that the running gradient() leaves out
//   framework/engine/backward.cpp       read_lately        T  tensors read without a tape, for a hint
//   framework/engine/parameter.cpp      recent_names       T  names of parameters, for a hint
//   comm/distributed/same_parameters.cpp notes             T  over which ranks a parameter was replicated
//   comm/distributed/same_parameters.cpp called_after_steps P whether step_hook is set
//   comm/process/problem.cpp            asking             T  whether memory has also run out in the handler of that error
//   comm/process/standard_streams.cpp   output_error, reason P standard output belongs to the process
//   comm/transport/summation_mode.cpp   fixed_in_process   P  whether any communicator adds in a fixed order
//   comm/transport/transport.cpp        of_several_ranks P whether the program has several ranks, for total() of plain tensors
//   comm/transport/waited.cpp           waited, depth      T  how long a rank has waited
//   comm/transport/watch/call_board.cpp board              T  the call a rank is in
//   models/c/call.cpp                   last_error, failed_calls T C programs ask for the reason of their last failure
//   models/c/handles.cpp                table              P  the objects of C programs, by their handles
//   models/c/handles.cpp                made_here          T  the handles of each scope of a C program
//   models/trainer/run.cpp              told               T  how many timed GPU kernels this rank has already reported
//   framework/base/warning.cpp          all                P  warnings that were printed, each once
//   models/train/checkpoint/read.cpp    said               P  likewise, of checkpoints
//   framework/base/new_file.cpp         found              P  folders already searched for files of ended processes
//   models/train/restart/local_folder.cpp number           P  unique names of files that are written concurrently
//   ops/kernel/thread_buffer.h          damaged, alive     P  whether a kernel wrote outside its scratch, for tests
//   framework/cuda/device.cpp           instance           P  counters
//   ops/external.cpp                    names, names_mutex P names of external(), to which logs refer after their ops are gone
//   framework/tensor/storage.cpp        real, gpu, dry     P  counters; for the dry device T
//   framework/tensor/tensor.cpp         counter            P  unique numbers of tensors
//   framework/engine/backward.cpp       made               P  unique numbers of tapes
//   models/c/handles.cpp                begun              P  unique numbers of scopes
//   comm/communicator.cpp               communicators_made P  unique numbers of communicators
//
// Memory and handles that are reused:
//   framework/cuda/device.cpp           lease, thread_index T streams of a GPU, one set per rank thread
//   framework/cuda/graph.cpp            running            T  the step being captured
//   framework/tensor/storage.cpp        instance           P  host memory
//   models/data/loader/regions.cpp      instance           P  memory of batches
//   ops/views/resample.cpp              maps               T  matrices of resampling, once on each GPU
//   ops/conv/conv_reduced.cpp           memory             T  scratch
//   ops/backends/onednn/onednn.h        in_order, buffer   T  a stream and scratch for each thread that calls the library
//   ops/backends/patches/patches.cpp    of_weights, of_bias, of_inputs, of_outputs, of_sums T scratch
//   ops/backends/onednn/onednn_conv.cpp buffer             T  scratch
//   ops/backends/onednn/onednn_conv.cpp cache              P  primitives shared by threads
//   ops/backends/onednn/onednn_pool.cpp cache              P  likewise
//   ops/backends/onednn/held_signals.h  team, member, met  T  whether OpenMP's threads have signals blocked
//   ops/fft/fft_cpu.cpp                buffer             T  scratch
//   ops/backends/fftw/fftw.cpp          plans              P  plans of FFTW shared by threads
//   ops/backends/cufft/cufft_lines.cpp  plans              T  plans of cuFFT, which one thread at a time may execute
//   ops/backends/winograd/winograd.cpp  buffer, weights, shared T scratch
//   ops/backends/winograd/winograd_kernels.cpp kernels     P  the kernels that this processor can run
//   ops/backends/cuda/scratch.h         lease              T  handles of cuDNN and cuBLASLt
//   ops/backends/cuda/scratch.h         instance           P  handles waiting for the streams of their threads
//   comm/transport/nccl/connection.cpp  last_stream        T  one order of all calls, before NCCL 2.26
//   comm/transport/nccl/connection.cpp  instance           P  the thread that looks for failed connections
//   comm/transport/mpi/call.cpp         made               P  MPI's types and operations of 16-bit numbers
//   comm/messages/transfer.cpp          buffers            P  buffers of abandoned transfers that may still be running
//   comm/hdf5/io_thread.cpp             queue              P  HDF5 is called by one thread only
//   comm/hdf5/chunks.cpp                all                P  unpacked chunks
//   comm/hdf5/library.cpp               left               P  files that cannot be closed
//   comm/transport/mpi/world.cpp        farewell, several_hosts P MPI is initialised and finalised once

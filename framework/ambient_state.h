#pragma once
// All state of the library that no object holds: of a thread (T) or of the process (P), and why it is not an argument. A rank is
// a thread or a process, so that what is of a rank is of a thread. tests/structure.py compares this list with the sources.
//
// What a program sets, for as long as an object lives or until it is set again:
//   framework/engine/kept_memory.cpp    hashes_wrapped     P  MPIGRAD_CHECKS=memory, which comm/ reads
//   framework/engine/backward.cpp       active             T  tapes that record: the innermost sees every op
//   framework/engine/apply.cpp          cost_log           T  the innermost CostLog, likewise
//   framework/engine/apply.cpp          observer           T  the innermost OpObserver, likewise
//   framework/engine/buckets.cpp        innermost_norm     T  who sums squares of gradients while they are reduced
//   framework/tensor/storage.cpp        thread_device      T  UseDevice: where new tensors are made
//   framework/tensor/tensor.cpp         halo_dimension     T  HaloRoom: whether results get room for planes of other ranks
//   models/nn/layers.cpp                layer_trace        T  who is told which layers run
//   models/nn/layers.cpp                no_batch_statistics T why a norm may use no statistics of its batch
//   ops/recompute.cpp                   innermost          T  the recompute() that runs
//   ops/gpu_settings.cpp                mutex              P  set_gpu_settings(): how GPUs round and choose kernels
//   framework/optim/optimizer.cpp       step_hook          P  who is called after steps; framework/ knows no ranks
//   models/train/restart/interruption.cpp first_signal, noted_at, asked, users_mutex P signals come to the process
//   comm/transport/watch/whereabouts.cpp noted_count, wanted P where a signal found the main thread
//   ops/backends/cudnn/tuning_file.cpp  file               P  MPIGRAD_TUNING_FILE: kernels that were timed
//
// What an error or a watchdog from below must know:
//   framework/base/op_scope.cpp         running_op         T  the op that runs
//   framework/engine/activity.cpp       activity           T  what a rank is at
//   framework/engine/apply.cpp          recorded           T  whether the call that runs is recorded
//   framework/engine/backward.cpp       replay_here        T  the entry whose derivative is computed
//   framework/engine/backward.cpp       frozen             T  parameters that the gradient() that runs leaves out
//   framework/engine/backward.cpp       read_lately        T  tensors read without a tape, for a hint
//   framework/engine/parameter.cpp      recent_names       T  names of parameters, for a hint
//   comm/distributed/same_parameters.cpp notes             T  over which ranks a parameter was replicated
//   comm/distributed/same_parameters.cpp called_after_steps P that step_hook is set
//   comm/process/problem.cpp            asking             T  whether memory has run out in the handler of that
//   comm/process/standard_streams.cpp   output_error, reason P standard output is the process's
//   comm/transport/summation_mode.cpp   fixed_in_process   P  whether any communicator adds in a fixed order
//   comm/transport/transport.cpp        of_several_ranks P whether the program has several ranks, for total() of plain tensors
//   comm/transport/waited.cpp           waited, depth      T  how long a rank has waited
//   comm/transport/watch/call_board.cpp board              T  the call a rank is in
//   models/trainer/run.cpp              told               T  how many kernels of a GPU this rank has already reported as timed
//   framework/base/warning.cpp          all                P  warnings that were printed, each once
//   framework/base/new_file.cpp         found              P  folders that were looked through for files of ended processes
//   models/train/restart/local_folder.cpp number           P  names of files that are written at once
//   ops/kernel/thread_buffer.h          damaged, alive     P  whether kernels wrote outside their scratch, for tests
//   framework/cuda/device.cpp           instance           P  counters
//   framework/tensor/storage.cpp        real, gpu, dry     P  counters; of the dry device T
//   comm/communicator.cpp               communicators_made P  numbers that tell communicators apart
//
// Memory and handles that are used again:
//   framework/cuda/device.cpp           lease, thread_index T a GPU's streams, one set for each thread that is a rank
//   framework/cuda/graph.cpp            running            T  the step that is captured
//   framework/tensor/storage.cpp        instance           P  host memory
//   models/data/loader/regions.cpp      instance           P  memory of batches
//   ops/views/resample.cpp              maps               T  matrices of resampling, once on each GPU
//   ops/conv/conv_reduced.cpp           memory             T  scratch
//   ops/backends/onednn/onednn.h        in_order, buffer   T  a stream and scratch for each thread that calls the library
//   ops/backends/onednn/onednn_conv.cpp buffer             T  scratch
//   ops/backends/onednn/onednn_conv.cpp cache              P  primitives, which threads share
//   ops/backends/onednn/onednn_pool.cpp cache              P  likewise
//   ops/backends/onednn/held_signals.h  team, member, met  T  whether OpenMP's threads have their signals blocked
//   ops/backends/winograd/winograd.cpp  buffer, weights, shared T scratch
//   ops/backends/winograd/winograd_kernels.cpp kernels     P  those that this processor can run
//   ops/backends/cuda/scratch.h         lease              T  handles of cuDNN and cuBLASLt
//   ops/backends/cuda/scratch.h         instance           P  handles that wait for their threads' streams
//   comm/transport/nccl/connection.cpp  last_stream        T  one order of all calls, before NCCL 2.26
//   comm/transport/nccl/connection.cpp  instance           P  who looks for connections that have failed
//   comm/transport/mpi/call.cpp         made               P  MPI's types and operations of 16-bit numbers
//   comm/messages/transfer.cpp          buffers            P  of transfers that were given up and may still go on
//   comm/hdf5/io_thread.cpp             queue              P  HDF5 is called by one thread
//   comm/hdf5/chunks.cpp                all                P  chunks that were unpacked

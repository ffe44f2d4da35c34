#!/usr/bin/env python3
"""Seconds of mpi4py-fft's real transforms of a cube that ranks share in slabs: medians of the slowest rank.

mpiexec -n 2 python3 fft_peer.py [SIDE [REPETITIONS]]     next to: mpiexec -n 2 build/tests/fft_rate [SIDE [REPETITIONS]]
"""

import statistics
import sys
import time

import mpi4py_fft
import numpy as np
from mpi4py import MPI

n = int(sys.argv[1]) if len(sys.argv) > 1 else 256
repetitions = int(sys.argv[2]) if len(sys.argv) > 2 else 5
world = MPI.COMM_WORLD
for flag in ('FFTW_ESTIMATE', 'FFTW_MEASURE'):
    fft = mpi4py_fft.PFFT(world, [n] * 3, dtype=float, grid=(-1,), planner_effort=flag)
    x = mpi4py_fft.newDistArray(fft, False)
    x[:] = np.random.default_rng(world.rank).uniform(-1, 1, x.shape)
    z = mpi4py_fft.newDistArray(fft, True)
    seconds = {'rfft': [], 'irfft': []}
    for i in range(repetitions + 1):
        for name, run in (('rfft', lambda: fft.forward(x, z)), ('irfft', lambda: fft.backward(z, x))):
            world.Barrier()
            start = time.perf_counter()
            run()
            slowest = world.allreduce(time.perf_counter() - start, MPI.MAX)
            if i > 0:
                seconds[name].append(slowest)
    if world.rank == 0:
        print(f'mpi4py-fft {mpi4py_fft.__version__}, {flag}, {world.size} ranks, {n}^3 float64:',
              ', '.join(f'{name} {statistics.median(times):.4f} s' for name, times in seconds.items()))

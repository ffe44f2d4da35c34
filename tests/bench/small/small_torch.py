#!/usr/bin/env python3
"""PyTorch's microseconds of the calls of small_calls.cpp, from Python. Prints `NAME SECONDS` lines.

python3 small_torch.py [ROUNDS]
"""

import statistics
import sys
import time

import torch

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
torch.set_num_threads(1)
CALLS = 2000


def seconds(f):
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        for _ in range(CALLS):
            f()
        times.append((time.perf_counter() - start) / CALLS)
    return statistics.median(times[1:])


cases = {
    'add': ((16,), (16,), torch.add),
    'matmul': ((8, 8), (8, 8), torch.matmul),
    'conv': ((1, 1, 4, 4, 4), (1, 1, 3, 3, 3), lambda a, b: torch.nn.functional.conv3d(a, b, padding=1)),
}
for name, (one, two, f) in cases.items():
    a, b = torch.rand(one), torch.rand(two)
    x, y = torch.rand(one, requires_grad=True), torch.rand(two, requires_grad=True)
    with torch.no_grad():
        print(f'{name} {seconds(lambda: f(a, b)):.9f}')
    print(f'{name}_recorded {seconds(lambda: f(x, y)):.9f}')
    print(f'{name}_gradient {seconds(lambda: torch.autograd.grad(f(x, y).sum(), (x, y))):.9f}')

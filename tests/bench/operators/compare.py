"""Trains Fourier neural operators here and in the Python library neuraloperator 2.0, on the same data (examples/first/
neural_operator.cpp makes them), with the same structure, number of epochs and schedule of the learning rate, and prints the errors.

    python3 tests/bench/operators/compare.py build --folder /tmp/operators [--seeds 3] [--samples 200] [--epochs 50] [--jobs 1]

The Python that runs it needs torch, neuraloperator and h5py. Both libraries use one thread, and `jobs` pairs train
at a time. Each network of ours is also copied into neuraloperator's class FNO, which must have the same error: both compute the same
function.
"""

import argparse
import concurrent.futures
import math
import os
import re
import statistics
import subprocess

import h5py
import numpy
import torch
from neuralop.models import FNO

# Points per side, n_modes of neuraloperator, width.
PROBLEMS = {"burgers": (256, (30,), 32), "darcy": (32, (12, 12), 24)}
BATCH, RATE = 20, 2e-3


def network(problem):
    _, modes, width = PROBLEMS[problem]
    return FNO(n_modes=modes, in_channels=1, out_channels=1, hidden_channels=width)


def parameters(net):
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in net.parameters())


def fields(folder, problem, samples):
    """Training and test pairs as [n, 1, points...]."""
    dimensions = len(PROBLEMS[problem][1])
    x, y = (torch.from_numpy(numpy.load(f"{folder}/{name}.npy")) for name in ("inputs", "solutions"))
    x, y = (t.reshape(t.shape[0], 1, *t.shape[1:-1][-dimensions:]) for t in (x, y))
    return (x[:samples], y[:samples]), (x[samples:], y[samples:])


def error(net, test):
    with torch.no_grad():
        off, truth = (net(test[0]) - test[1]).flatten(1), test[1].flatten(1)
    return (off.norm(dim=1) / truth.norm(dim=1)).mean().item()


def train(problem, folder, samples, epochs, seed):
    torch.manual_seed(seed)
    training, test = fields(folder, problem, samples)
    net = network(problem)
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    steps = epochs * math.ceil(samples / BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * min(step / steps, 1))) / 2)
    for _ in range(epochs):
        for rows in torch.randperm(samples).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(training[0][rows]), training[1][rows]).backward()
            optimizer.step()
            schedule.step()
    return parameters(net), error(net, test)


def copied(problem, file):
    """neuraloperator's network with our weights."""
    net = network(problem)
    dimensions = len(PROBLEMS[problem][1])
    with h5py.File(file) as stored, torch.no_grad():
        get = lambda name: torch.from_numpy(stored[f"parameters/{name}"][()])
        dense = lambda name, to: to.copy_(get(name).reshape(to.shape))
        pairs = [("lifting", net.lifting.fcs), ("projection", net.projection.fcs)]
        for name, layers in pairs:
            for i, layer in enumerate(layers, 1):
                dense(f"{name}{i}.weight", layer.weight), dense(f"{name}{i}.bias", layer.bias)
        blocks = net.fno_blocks
        for i, conv in enumerate(blocks.convs):
            w = torch.view_as_complex(get(f"spectral{i + 1}.weight"))  # [kd, kh, kw, in, out]
            w = w.reshape(*w.shape[:3][-dimensions:], *w.shape[3:])
            w = w.permute(dimensions, dimensions + 1, *range(dimensions))
            if dimensions > 1:
                w = torch.fft.fftshift(w, dim=tuple(range(2, dimensions + 1)))
            conv.weight.tensor.copy_(w)
            dense(f"spectral{i + 1}.bias", conv.bias)
            dense(f"skip{i + 1}.weight", blocks.fno_skips[i].conv.weight)
            dense(f"gate{i + 1}.weight", blocks.channel_mlp_skips[i].weight)
            for letter, layer in zip("ab", blocks.channel_mlp[i].fcs):
                dense(f"mlp{i + 1}{letter}.weight", layer.weight), dense(f"mlp{i + 1}{letter}.bias", layer.bias)
    return net


def ours(build, problem, folder, samples, epochs, seed):
    command = [f"{build}/examples/neural_operator", problem, samples, PROBLEMS[problem][0], epochs, seed, folder]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LD_LIBRARY_PATH": ""}
    text = subprocess.run([*map(str, command), "--transport", "threads", "--ranks", "1"], env=environment, check=True,
                          capture_output=True, text=True).stdout
    count, found = re.search(r"(\d+) parameters.*: error ([0-9.]+), before", text).groups()
    return int(count), float(found)


def pair(build, problem, folder, samples, epochs, seed):
    """Parameters and errors here and there, and the error of our weights there."""
    torch.set_num_threads(1)
    here = ours(build, problem, folder, samples, epochs, seed)
    test = fields(folder, problem, samples)[1]
    return here, train(problem, folder, samples, epochs, seed), error(copied(problem, f"{folder}/network.h5"), test)


def main():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("build")
    parse.add_argument("--folder", required=True)
    parse.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    for name, default in (("seeds", 3), ("samples", 200), ("epochs", 50), ("jobs", 1)):
        parse.add_argument(f"--{name}", type=int, default=default)
    a = parse.parse_args()
    print("| problem | parameters here, there | errors here | errors there | mean here | mean there | ratio |")
    print("|---|---|---|---|---|---|---|")
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        runs = {problem: [pool.submit(pair, a.build, problem, f"{a.folder}/{problem}{seed}", a.samples, a.epochs, seed)
                          for seed in range(1, a.seeds + 1)] for problem in a.problems}
        for problem, made in runs.items():
            here, there, copies = zip(*(run.result() for run in made))
            off = max(abs(copy - found) for copy, (_, found) in zip(copies, here))
            if off > 1e-4:
                raise SystemExit(f"{problem}: the same weights differ by {off:.1e} in their errors")
            errors = [[found for _, found in side] for side in (here, there)]
            means = [statistics.mean(side) for side in errors]
            text = [", ".join(f"{e:.4f}" for e in side) for side in errors]
            print(f"| {problem} | {here[0][0]}, {there[0][0]} | {text[0]} | {text[1]} | {means[0]:.4f} | {means[1]:.4f} "
                  f"| {means[0] / means[1]:.3f} |", flush=True)


if __name__ == "__main__":
    main()

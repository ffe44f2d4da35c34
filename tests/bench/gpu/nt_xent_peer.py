#!/usr/bin/env python3
"""Times PyTorch's NT-Xent or CLIP loss in its direct form, forward and backward, in bfloat16 by autocast; prints ms and MiB."""
import argparse
import time

import torch
import torch.nn.functional as F


def nt_xent(a, b, temperature):
    z = F.normalize(torch.cat([a, b]), dim=1)
    n = len(a)
    similarities = z @ z.t() / temperature
    similarities = similarities.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), float("-inf"))
    return F.cross_entropy(similarities.float(), torch.arange(2 * n, device=z.device).roll(n))


def clip(a, b, scale):
    similarities = (F.normalize(a, dim=1) @ F.normalize(b, dim=1).t() * scale).float()
    own = torch.arange(len(a), device=a.device)
    return (F.cross_entropy(similarities, own) + F.cross_entropy(similarities.t(), own)) / 2


parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=16384)
parser.add_argument("--width", type=int, default=768)
parser.add_argument("--clip", action="store_true")
o = parser.parse_args()
samples = o.rows if o.clip else o.rows // 2
a, b = (torch.randn(samples, o.width, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
beside = torch.cuda.memory_allocated()
best = float("inf")
try:
    for _ in range(6):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = clip(a, b, 14.3) if o.clip else nt_xent(a, b, 0.1)
        loss.backward()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
        a.grad = b.grad = None
    print(f"{1e3 * best:.2f} ms, {(torch.cuda.max_memory_allocated() - beside) / 2**20:.0f} MiB")
except torch.cuda.OutOfMemoryError:
    print("does not fit in the memory")

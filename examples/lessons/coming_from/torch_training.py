"""The small program of training.cpp in PyTorch with DistributedDataParallel (gloo).

    python3 torch_training.py 2
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(1, 4, 3, padding=1)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3, 4)))


def main(rank, ranks):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29533")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(1)
    x = torch.randn(8, 1, 8, 8, 8, dtype=torch.float64)
    x = x[rank * 8 // ranks : (rank + 1) * 8 // ranks]
    net = nn.parallel.DistributedDataParallel(Network().double())
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(1, 6):
        sgd.zero_grad()
        loss = ((net(x) - 1) ** 2).mean()  # of this rank's volumes; DDP averages the gradients
        loss.backward()
        sgd.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step}: loss {mean / ranks:.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(main, args=(int(sys.argv[1]),), nprocs=int(sys.argv[1]))

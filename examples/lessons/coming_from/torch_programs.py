"""The five programs of programs.cpp in PyTorch (torch.distributed with gloo), and the factor of each gradient.

    torchrun --nproc-per-node 2 torch_programs.py        or: python3 torch_programs.py 2
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as with_gradient
import torch.multiprocessing

N = 16


def factor(name, found, expected):
    products = torch.stack([(found * expected).sum(), (expected * expected).sum(), (found * found).sum()])
    dist.all_reduce(products)
    along, size, length = products.tolist()
    # The part of the gradient that points elsewhere.
    rest = max(0.0, length / size - (along / size) ** 2) ** 0.5
    if dist.get_rank() == 0:
        print(f"{name:66s} {along / size:8.4f}" + (f"   another direction, {rest:.2f} of its length" if rest > 1e-6 else ""))


def main(rank, ranks):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29531")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(1)
    normal = lambda *shape: torch.randn(*shape, dtype=torch.float64)
    mine = lambda t: t[rank * N // ranks : (rank + 1) * N // ranks].detach().clone().requires_grad_()
    x, t, w, za, zb, u = normal(N, 3), normal(N, 2), normal(2, 3), normal(N, 4), normal(N, 4), normal(N)
    gradient = lambda loss, *of: torch.autograd.grad(loss, of)
    leaf = lambda value: value.detach().clone().requires_grad_()

    # 1. The mean of a loss over a batch that is divided over ranks.
    net = torch.nn.Linear(3, 2, bias=False).double()
    net.weight.data = w.clone()
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    one = leaf(w)
    (expected,) = gradient(((x @ one.T - t) ** 2).sum() / N, one)
    ((ddp(mine(x).detach()) - mine(t).detach()) ** 2).sum().div(N / ranks).backward()
    factor("1. DDP, mean over my samples", net.weight.grad, expected)
    net.weight.grad = None
    ((ddp(mine(x).detach()) - mine(t).detach()) ** 2).sum().div(N).backward()
    factor("   DDP, sum over my samples / N", net.weight.grad, expected)

    # 2. A loss of a sum over ranks, which every rank knows.
    all_x, my_x = leaf(x), mine(x)
    (expected,) = gradient((all_x**2).sum() ** 2, all_x)
    expected = expected[rank * N // ranks : (rank + 1) * N // ranks]
    factor("2. distributed.nn.functional.all_reduce, squared, on every rank", gradient(with_gradient.all_reduce((my_x**2).sum()) ** 2, my_x)[0], expected)
    s = (my_x**2).sum()
    dist.all_reduce(s)  # in place, not recorded by autograd
    factor("   distributed.all_reduce, squared, on every rank", gradient(s**2, my_x)[0], expected)

    # 4. A contrastive loss: my rows against all ranks' columns.
    loss = lambda a, columns, partners: (torch.logsumexp(a @ columns.T, 1) - (a * partners).sum(1)).sum() / N
    all_b = leaf(zb)
    (expected,) = gradient(loss(za, all_b, all_b), all_b)
    expected = expected[rank * N // ranks : (rank + 1) * N // ranks]
    a, b = mine(za).detach(), mine(zb)
    factor("4. distributed.nn.functional.all_gather: by the columns", gradient(loss(a, torch.cat(with_gradient.all_gather(b)), b), b)[0], expected)
    columns = [torch.empty_like(b) for _ in range(ranks)]
    dist.all_gather(columns, b.detach())
    factor("   distributed.all_gather: by the columns", gradient(loss(a, torch.cat(columns), b), b)[0], expected)
    columns[rank] = b
    factor("   the same, own columns put back: by the columns", gradient(loss(a, torch.cat(columns), b), b)[0], expected)

    # 5. Ghosts from both neighbours by messages.
    my_u = mine(u)
    all_u = leaf(u)
    (expected,) = gradient(((torch.roll(all_u, 1) - 2 * all_u + torch.roll(all_u, -1)) ** 2).sum(), all_u)
    expected = expected[rank * N // ranks : (rank + 1) * N // ranks]
    left, right = torch.empty(1, dtype=torch.float64), torch.empty(1, dtype=torch.float64)
    below, above = (rank - 1) % ranks, (rank + 1) % ranks
    for request in dist.batch_isend_irecv([dist.P2POp(dist.isend, my_u[-1:].detach().clone(), above, tag=1), dist.P2POp(dist.irecv, left, below, tag=1),
                                           dist.P2POp(dist.isend, my_u[:1].detach().clone(), below, tag=2), dist.P2POp(dist.irecv, right, above, tag=2)]):
        request.wait()
    wide = torch.cat([left, my_u, right])
    factor("5. ghosts by isend and irecv, a stencil", gradient(((wide[:-2] - 2 * my_u + wide[2:]) ** 2).sum(), my_u)[0], expected)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        torch.multiprocessing.spawn(main, args=(int(sys.argv[1]),), nprocs=int(sys.argv[1]))

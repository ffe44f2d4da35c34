"""Prints the bytes that a spectral layer of a Fourier neural operator sends in one step, forwards and backwards, on a field that is
split in depth: in JAX on forced host devices, from the collectives of the compiled program, and here, by the formula of
models/nn/spectral/spectral_conv.h (tests/models/nn/spectral/ compares it with counts).

    python3 tests/bench/operators/jax_bytes.py [--ranks 2] [--side 64] [--channels 16] [--modes 16 16 9]

The Python that runs it needs jax.
"""

import argparse
import math
import os
import re

parse = argparse.ArgumentParser(description=__doc__)
for name, default in (("ranks", 2), ("side", 64), ("channels", 16)):
    parse.add_argument(f"--{name}", type=int, default=default)
parse.add_argument("--modes", type=int, nargs=3, default=(16, 16, 9))
a = parse.parse_args()
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={a.ranks}"

import jax  # noqa: E402  after the number of devices is known
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


def kept(modes):
    return [*range((modes + 1) // 2), *range(-(modes // 2), 0)]


def spectral(x, w):
    z = jnp.fft.rfftn(x, axes=(1, 2, 3))
    at = jnp.ix_(jnp.arange(x.shape[0]), jnp.array(kept(a.modes[0])), jnp.array(kept(a.modes[1])), jnp.arange(a.modes[2]))
    y = jnp.einsum("ndhwc,dhwco->ndhwo", z[at], w)
    return jnp.fft.irfftn(jnp.zeros_like(z).at[at].set(y), s=x.shape[1:4], axes=(1, 2, 3))


def step(x, w):
    return jax.grad(lambda x, w: jnp.sum(spectral(x, w) ** 2), (0, 1))(x, w)


mesh = Mesh(jax.devices(), ("depth",))
split, whole = NamedSharding(mesh, PartitionSpec(None, "depth")), NamedSharding(mesh, PartitionSpec())
x = jax.ShapeDtypeStruct((1, a.side, a.side, a.side, a.channels), jnp.float32, sharding=split)
w = jax.ShapeDtypeStruct((*a.modes, a.channels, a.channels), jnp.complex64, sharding=whole)
text = jax.jit(step, out_shardings=(split, whole)).lower(x, w).compile().as_text()

# What a device sends: of a result of n bytes, n (P - 1) / P in a gather or an exchange, twice that in a reduction.
sizes, p = {"f32": 4, "c64": 8, "pred": 1, "s32": 4}, a.ranks
total = {}
for shapes, kind in re.findall(r" = (\(?[^=]*?\)?) (all-gather|all-to-all|all-reduce|reduce-scatter|collective-permute)(?:-start)?\(", text):
    count = sum(sizes.get(t, 8) * math.prod(int(n) for n in d.split(",") if n) for t, d in re.findall(r"([a-z]+\d*)\[([\d,]*)\]", shapes))
    part = {"all-reduce": 2 * (p - 1) / p, "reduce-scatter": p - 1, "collective-permute": 1}.get(kind, (p - 1) / p)
    total[kind] = total.get(kind, 0) + count * part
weights = 8 * math.prod(a.modes) * a.channels**2
here = 2 * 2 * 8 * a.channels * a.side / p * a.modes[1] * a.modes[2] * (p - 1) / p
jax_bytes = sum(total.values())
print(f"{a.side}^3, {a.channels} channels, {a.modes[0]} x {a.modes[1]} x {a.modes[2]} frequencies, {p} ranks; MB that a rank sends in a step")
print("JAX", jax.__version__, {kind: round(n / 1e6, 2) for kind, n in total.items()}, f"sum {jax_bytes / 1e6:.2f}")
print(f"here {here / 1e6:.3f} (weights have {weights / 1e6:.2f} and are not sent); ratio {jax_bytes / here:.1f}")

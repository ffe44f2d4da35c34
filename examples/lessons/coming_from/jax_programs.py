"""The five programs of programs.cpp in JAX (shard_map over host devices), and the factor of each gradient.

    python3 jax_programs.py 4
"""

import os
import sys

ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 4
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ranks}"

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

jax.config.update("jax_enable_x64", True)
N = 16
mesh = jax.make_mesh((ranks,), ("r",), axis_types=(jax.sharding.AxisType.Auto,))
split, whole = PartitionSpec("r"), PartitionSpec()
keys = iter(jax.random.split(jax.random.key(1), 20))
normal = lambda *shape: jax.random.normal(next(keys), shape, dtype=jnp.float64)
x, t, w, za, zb, u = normal(N, 3), normal(N, 2), normal(2, 3), normal(N, 4), normal(N, 4), normal(N)
w1, w2 = normal(12, 3), normal(2, 12)


def on_ranks(function, inputs, outputs, checked=True):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=checked))


def factor(name, found, expected):
    found, expected = found.ravel(), expected.ravel()
    along = float(found @ expected / (expected @ expected))
    rest = float(jnp.linalg.norm(found - along * expected) / jnp.linalg.norm(expected))
    print(f"{name:66s} {along:8.4f}" + (f"   another direction, {rest:.2f} of its length" if rest > 1e-6 else ""))


# 1. The mean of a loss over a batch that is divided over ranks: w is replicated.
error = lambda w, x, t: jnp.sum((x @ w.T - t) ** 2)
expected = jax.grad(lambda w: error(w, x, t) / N)(w)
factor("1. shard_map(grad), sum over my samples / N", on_ranks(lambda w, x, t: jax.grad(lambda w: error(w, x, t) / N)(w), (whole, split, split), whole)(w, x, t), expected)
factor("   shard_map(grad), mean over my samples", on_ranks(lambda w, x, t: jax.grad(lambda w: error(w, x, t) / x.shape[0])(w), (whole, split, split), whole)(w, x, t), expected)

# 2. A loss of a sum over ranks, which every rank knows.
expected = jax.grad(lambda x: jnp.sum(x**2) ** 2)(x)
known = jax.grad(lambda x: lax.psum(jnp.sum(x**2), "r") ** 2)
factor("2. square(psum(x)) on every rank", on_ranks(known, split, split)(x), expected)
factor("   the same without types (check_vma=False, and pmap)", on_ranks(known, split, split, checked=False)(x), expected)

# 3. Two layers, the first split by outputs, the second by inputs.
two = lambda x, w1, w2: jnp.tanh(x @ w1.T) @ w2.T
expected = jax.grad(lambda x: jnp.sum(two(x, w1, w2) ** 2))(x)
layers = jax.grad(lambda x, w1, w2: jnp.sum(lax.psum(two(x, w1, w2), "r") ** 2))
specs = (whole, split, PartitionSpec(None, "r"))
factor("3. two layers and a psum: by x", on_ranks(layers, specs, whole)(x, w1, w2), expected)
untyped = on_ranks(lambda *a: layers(*a)[None], specs, split, checked=False)(x, w1, w2)
factor("   the same without types: by x, on rank 0", untyped[0], expected)

# 4. A contrastive loss: my rows against all ranks' columns.
loss = lambda a, columns, partners: jnp.sum(jax.nn.logsumexp(a @ columns.T, axis=1) - jnp.sum(a * partners, 1)) / N
expected = jax.grad(lambda b: loss(za, b, b))(zb)
contrast = jax.grad(lambda b, a: loss(a, lax.all_gather(b, "r", tiled=True), b))
factor("4. all_gather: by the columns", on_ranks(contrast, (split, split), split)(zb, za), expected)

# 5. Ghosts from both neighbours.
expected = jax.grad(lambda u: jnp.sum((jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)) ** 2))(u)


def stencil(u):
    forth, back = [(i, (i + 1) % ranks) for i in range(ranks)], [(i, (i - 1) % ranks) for i in range(ranks)]
    wide = jnp.concatenate([lax.ppermute(u[-1:], "r", forth), u, lax.ppermute(u[:1], "r", back)])
    return jnp.sum((wide[:-2] - 2 * u + wide[2:]) ** 2)


factor("5. ghosts by ppermute, a stencil", on_ranks(jax.grad(stencil), split, split)(u), expected)

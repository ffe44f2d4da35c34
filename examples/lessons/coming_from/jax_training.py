"""The small program of training.cpp in JAX, on host devices. The sharding decides how the batch is divided.

    python3 jax_training.py 2
"""

import os
import sys

ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ranks}"

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

jax.config.update("jax_enable_x64", True)


def net(p, x):
    y = jax.lax.conv_general_dilated(x, p["w"], (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))
    return jax.nn.relu(y + p["b"]).mean((1, 2, 3)) @ p["head"] + p["head_b"]


def loss(p, x):
    return jnp.mean((net(p, x) - 1) ** 2)


mesh = jax.make_mesh((ranks,), ("r",), axis_types=(jax.sharding.AxisType.Auto,))
split, whole = NamedSharding(mesh, PartitionSpec("r")), NamedSharding(mesh, PartitionSpec())
k1, k2, k3 = jax.random.split(jax.random.key(2), 3)
x = jax.device_put(jax.random.normal(k1, (8, 8, 8, 8, 1)), split)
p = {"w": 0.3 * jax.random.normal(k2, (3, 3, 3, 1, 4)), "b": jnp.zeros(4), "head": jax.random.normal(k3, (4, 1)), "head_b": jnp.zeros(1)}
p = jax.device_put(p, whole)
step = jax.jit(jax.value_and_grad(loss))
for i in range(5):
    value, gradient = step(p, x)
    p = jax.tree.map(lambda a, g: a - 0.1 * g, p, gradient)
    print(f"step {i + 1}: loss {value:.9f}")

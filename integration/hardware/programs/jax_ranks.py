"""One process of a JAX job with a GPU each: jax_ranks.py NAME MODE [PAUSE]. Process 0 appends "step loss" for every step.

The file NAME.finish asks all processes to end.
"""
import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

name, pause = sys.argv[1], float((sys.argv[3:] or [0.02])[0])
base = f"/run/torch/{name}"
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
jax.distributed.initialize(address, world, rank, local_device_ids=[rank])
mesh = Mesh(numpy.array(jax.devices()), ("data",))
shared, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
WIDTH, LAYERS, BATCH = 2048, 4, 512

source = numpy.random.default_rng(0)
weights = [jax.device_put(source.standard_normal((WIDTH, WIDTH), numpy.float32) / WIDTH**0.5, shared) for _ in range(LAYERS)]
own = numpy.random.default_rng(1 + rank).standard_normal((BATCH, WIDTH), numpy.float32)
inputs = jax.make_array_from_process_local_data(split, own)
targets = jax.make_array_from_process_local_data(split, numpy.roll(own, 1, axis=1))


def loss(weights, inputs, targets):
    hidden = inputs
    for weight in weights:
        hidden = jnp.tanh(hidden @ weight)
    return jnp.mean((hidden - targets) ** 2)


@jax.jit
def step(weights, inputs, targets, ends):
    value, slopes = jax.value_and_grad(loss)(weights, inputs, targets)
    return value, [weight - 0.1 * slope for weight, slope in zip(weights, slopes)], jnp.max(ends)


number, ends = 0, 0
while not ends:
    number += 1
    wanted = numpy.full(1, rank == 0 and os.path.exists(f"{base}.finish"), numpy.int32)
    value, weights, ends = step(weights, inputs, targets, jax.make_array_from_process_local_data(split, wanted))
    if rank == 0:
        with open(f"{base}.txt", "a") as file:
            file.write(f"{number} {float(value):.9f}\n")
    time.sleep(pause)
jax.distributed.shutdown()
print("ended", flush=True)

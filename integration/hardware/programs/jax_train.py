"""A small network in JAX, trained by one compiled step on one GPU; appends "step loss" to the file."""
import sys
import time

import jax
import jax.numpy as jnp

WIDTH, LAYERS, BATCH = 4096, 8, 1024
keys = jax.random.split(jax.random.key(0), LAYERS + 1)
weights = [jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5 for key in keys[1:]]
inputs = jax.random.normal(keys[0], (BATCH, WIDTH))
targets = jnp.roll(inputs, 1, axis=1)


def loss(weights):
    hidden = inputs
    for weight in weights:
        hidden = jnp.tanh(hidden @ weight)
    return jnp.mean((hidden - targets) ** 2)


@jax.jit
def step(weights):
    value, slopes = jax.value_and_grad(loss)(weights)
    return value, [weight - 0.1 * slope for weight, slope in zip(weights, slopes)]


assert jax.devices()[0].platform == "gpu", jax.devices()
for number in range(1, 1_000_000):
    value, weights = step(weights)
    with open(sys.argv[1], "a") as file:
        file.write(f"{number} {value:.9f}\n")
    time.sleep(0.02)

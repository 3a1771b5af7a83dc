"""A server of a Llama of 1.2 billion weights, which it reads from a file, as an inference server starts: weights, warm-up, and a CUDA graph
for each size of a batch. Without a second argument it writes the file. Appends "step token" for each answer."""
import math
import os
import sys
import time

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN, VOCABULARY, LENGTH = 16, 2048, 32, 8, 8192, 32000, 1024
HEAD = WIDTH // HEADS
# Those that vLLM captures by default, up to 128 (its documentation of cudagraph_capture_sizes).
BATCHES = [1, 2, 4, *range(8, 129, 8)]
torch.set_grad_enabled(False)
began = time.monotonic()


def said(what):
    print(f"{what} {time.monotonic() - began:.2f}", flush=True)


def random_weights():
    def weights(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / math.sqrt(shape[-1])

    layer = dict(query=(WIDTH, WIDTH), key=(KV_HEADS * HEAD, WIDTH), value=(KV_HEADS * HEAD, WIDTH), out=(WIDTH, WIDTH),
                 gate=(HIDDEN, WIDTH), up=(HIDDEN, WIDTH), down=(WIDTH, HIDDEN))
    return weights(VOCABULARY, WIDTH), [{name: weights(*shape) for name, shape in layer.items()} for _ in range(LAYERS)]


if len(sys.argv) < 3:
    torch.manual_seed(0)
    torch.save(random_weights(), sys.argv[1] + ".new")
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    sys.exit()

said("imported")
embedding, layers = torch.load(sys.argv[1], map_location="cuda")
said("loaded")
caches = [
    tuple(torch.zeros(BATCHES[-1], KV_HEADS, LENGTH, HEAD, device="cuda", dtype=torch.bfloat16) for _ in range(2)) for _ in layers
]
frequencies = 10000.0 ** (-torch.arange(0, HEAD, 2, device="cuda").float() / HEAD)
positions = torch.arange(LENGTH, device="cuda")
tokens = torch.zeros(BATCHES[-1], dtype=torch.long, device="cuda")
position = torch.zeros(1, dtype=torch.long, device="cuda")


def norm(x):
    return F.rms_norm(x, (WIDTH,))


def rotate(x):
    angle = position.float() * frequencies
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def step(batch):
    x = embedding[tokens[:batch]]
    seen = (positions <= position)[None, None, None, :]
    for layer, (keys, values) in zip(layers, caches):
        h = norm(x)
        query = rotate((h @ layer["query"].T).view(batch, HEADS, HEAD))
        keys[:batch].index_copy_(2, position, rotate((h @ layer["key"].T).view(batch, KV_HEADS, HEAD))[:, :, None])
        values[:batch].index_copy_(2, position, (h @ layer["value"].T).view(batch, KV_HEADS, 1, HEAD))
        attended = F.scaled_dot_product_attention(query[:, :, None], keys[:batch], values[:batch], attn_mask=seen, enable_gqa=True)
        x = x + attended.reshape(batch, WIDTH) @ layer["out"].T
        h = norm(x)
        x = x + (F.silu(h @ layer["gate"].T) * (h @ layer["up"].T)) @ layer["down"].T
    tokens[:batch].copy_((norm(x) @ embedding.T).argmax(dim=-1))


graphs, pool = {}, None
for batch in reversed(BATCHES):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step(batch)
    torch.cuda.current_stream().wait_stream(side)
    graphs[batch] = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graphs[batch], pool=pool):
        step(batch)
    pool = pool or graphs[batch].pool()
torch.cuda.synchronize()
said("captured")

tokens.zero_()
for number in range(1, 1_000_000):
    position.fill_(number % LENGTH)
    graphs[1].replay()
    with open(sys.argv[2], "a") as file:
        file.write(f"{number} {tokens[0].item()}\n")
    if number == 1:
        said("answered")
    time.sleep(0.02)

"""A small Llama with random weights that samples; its decoding step, sampling included, is one CUDA graph. Appends "step token"."""
import math
import sys
import time

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN, VOCABULARY, LENGTH = 16, 2048, 32, 8, 8192, 32000, 2048
HEAD = WIDTH // HEADS
path, pause = sys.argv[1], float(sys.argv[2])
torch.manual_seed(0)
torch.set_grad_enabled(False)


def weights(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / math.sqrt(shape[-1])


def cache():
    return torch.zeros(KV_HEADS, LENGTH, HEAD, device="cuda", dtype=torch.bfloat16)


embedding = weights(VOCABULARY, WIDTH)
layers = [
    dict(
        query=weights(WIDTH, WIDTH), key=weights(KV_HEADS * HEAD, WIDTH), value=weights(KV_HEADS * HEAD, WIDTH),
        out=weights(WIDTH, WIDTH), gate=weights(HIDDEN, WIDTH), up=weights(HIDDEN, WIDTH), down=weights(WIDTH, HIDDEN),
        keys=cache(), values=cache(),
    )
    for _ in range(LAYERS)
]
frequencies = 10000.0 ** (-torch.arange(0, HEAD, 2, device="cuda").float() / HEAD)
positions = torch.arange(LENGTH, device="cuda")
token = torch.zeros(1, dtype=torch.long, device="cuda")
position = torch.zeros(1, dtype=torch.long, device="cuda")


def norm(x):
    return F.rms_norm(x, (WIDTH,))


def rotate(x):
    angle = position.float() * frequencies
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def step():
    x = embedding[token]
    seen = (positions <= position)[None, None, :]
    for layer in layers:
        h = norm(x)
        query = rotate((h @ layer["query"].T).view(HEADS, HEAD))
        layer["keys"].index_copy_(1, position, rotate((h @ layer["key"].T).view(KV_HEADS, HEAD))[:, None])
        layer["values"].index_copy_(1, position, (h @ layer["value"].T).view(KV_HEADS, 1, HEAD))
        keys, values = (layer[name].repeat_interleave(HEADS // KV_HEADS, dim=0) for name in ("keys", "values"))
        attended = F.scaled_dot_product_attention(query[:, None], keys, values, attn_mask=seen)
        x = x + attended.reshape(1, WIDTH) @ layer["out"].T
        h = norm(x)
        x = x + (F.silu(h @ layer["gate"].T) * (h @ layer["up"].T)) @ layer["down"].T
    logits = (norm(x) @ embedding.T).float()
    noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-9, 1 - 1e-7)))
    token.copy_((logits + noise).argmax(dim=-1))
    position.add_(1)


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()

token.zero_()
position.zero_()
torch.manual_seed(1)
for number in range(1, LENGTH):
    graph.replay()
    with open(path, "a") as file:
        file.write(f"{number} {token.item()}\n")
    time.sleep(pause)

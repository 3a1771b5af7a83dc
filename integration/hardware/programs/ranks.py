"""One rank of a job on several GPUs: ranks.py NAME MODE [PAUSE]. Rank 0 appends "step loss" for every step.

MODE: ddp, fsdp (training), graph (an all-reduce in a CUDA graph), symm (torch's symmetric memory), dp (one rank on all GPUs).
The files NAME.measure and NAME.finish ask all ranks to measure the bus, and to end as a job does.
With BACKEND=gloo, and TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES=1 for symm, the ranks share one GPU.
"""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

name, mode, pause = sys.argv[1], sys.argv[2], float((sys.argv[3:] or [0.02])[0])
base = f"/run/torch/{name}"
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
backend = os.environ.get("BACKEND", "nccl")
device = torch.device("cuda", rank % torch.cuda.device_count())
torch.cuda.set_device(device)
# Where gloo reduces.
reduced_on = device if backend == "nccl" else torch.device("cpu")
timeout = datetime.timedelta(seconds=int(os.environ.get("TIMEOUT", 600)))
dist.init_process_group(backend, device_id=device if backend == "nccl" else None, timeout=timeout)


def training(wrap):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1)).cuda()
    model = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    torch.manual_seed(rank)
    inputs = torch.randn(1024, 1024, device=device)
    targets = inputs[:, :16].sum(dim=1, keepdim=True)

    def step():
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def ddp():
    return training(lambda model: torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank]))


def fsdp():
    from torch.distributed.fsdp import fully_shard

    def wrap(model):
        for layer in model:
            if list(layer.parameters()):
                fully_shard(layer)
        return fully_shard(model)

    return training(wrap)


def dp():
    return training(torch.nn.DataParallel)


def graph():
    torch.manual_seed(rank)
    state = torch.randn(1024, 1024, device=device)
    weight = torch.randn(1024, 1024, device=device) / 32

    def body():
        product = state @ weight
        dist.all_reduce(product)
        state.copy_(torch.tanh(product / world + 0.001 * rank))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        body()

    def step():
        captured.replay()
        return state.square().mean()

    # A communicator that a graph uses is not destroyed.
    step.before_the_end = captured.reset
    return step


def symm():
    torch.manual_seed(rank)
    state = torch.randn(1 << 18, device=device)
    shared = [symm_mem.empty(1 << 18, dtype=torch.float32, device=device)]
    handle = [symm_mem.rendezvous(shared[0], dist.group.WORLD)]

    def step():
        shared[0].copy_(state)
        total = torch.ops.symm_mem.one_shot_all_reduce(shared[0], "sum", dist.group.WORLD.group_name)
        state.copy_(torch.tanh(total / world + 0.001 * rank))
        return state.square().mean()

    def shared_anew():
        handle.clear()
        shared.clear()
        shared.append(symm_mem.empty(1 << 18, dtype=torch.float32, device=device))
        handle.append(symm_mem.rendezvous(shared[0], dist.group.WORLD))

    step.before_the_end = shared_anew
    return step


def bus():
    count, rounds = 1 << 28, 10
    data = torch.ones(count, device=device)
    for _ in range(3):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(rounds):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / rounds
    del data
    torch.cuda.empty_cache()
    return 4 * count / seconds * 2 * (world - 1) / world / 1e9


def wanted():
    want = [os.path.exists(f"{base}.measure"), os.path.exists(f"{base}.finish")] if rank == 0 else [0, 0]
    want = torch.tensor(want, dtype=torch.int32, device=reduced_on)
    dist.broadcast(want, 0)
    return want.tolist()


def append(path, line):
    if rank == 0:
        with open(path, "a") as file:
            file.write(line + "\n")


def one(number):
    # Gloo has no average.
    loss = step().to(reduced_on) / world
    dist.all_reduce(loss)
    append(f"{base}.txt", f"{number} {loss.item():.9f}")


# More GPU memory, in MiB.
more = torch.ones(int(os.environ.get("MORE", 0)) << 20, dtype=torch.uint8, device=device)
step = {"ddp": ddp, "fsdp": fsdp, "graph": graph, "symm": symm, "dp": dp}[mode]()
number = 0
while True:
    number += 1
    one(number)
    measure, finish = wanted()
    if measure:
        append(f"{base}.bus", f"{bus():.0f}")
        if rank == 0:
            os.remove(f"{base}.measure")
    if finish:
        break
    time.sleep(pause)
if mode == "symm":
    # What was shared is freed, and shared anew.
    step.before_the_end()
    one(number + 1)
elif mode == "graph":
    step.before_the_end()
torch.cuda.synchronize()
dist.barrier()
dist.destroy_process_group()
print("ended", flush=True)

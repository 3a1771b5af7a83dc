"""One rank of a data-parallel training (argument: the name of its record); rank 0 appends "step loss" for every step."""
import os
import sys
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1)).cuda()
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
torch.manual_seed(rank)
inputs = torch.randn(1024, 1024, device="cuda")
targets = inputs[:, :16].sum(dim=1, keepdim=True)
step = 0
while True:
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    step += 1
    if rank == 0:
        with open(f"/run/torch/{sys.argv[1]}.txt", "a") as file:
            file.write(f"{step} {loss.item():.6f}\n")
    time.sleep(0.02)

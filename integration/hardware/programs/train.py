"""A small training on the GPU: AdamW on an MLP; appends "step loss" for every step."""
import time

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1)
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(4096, 1024, device="cuda")
targets = inputs[:, :16].sum(dim=1, keepdim=True)
step = 0
while True:
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    with open("/run/torch/loss.txt", "a") as file:
        file.write(f"{step} {loss.item():.6f}\n")
    time.sleep(0.05)

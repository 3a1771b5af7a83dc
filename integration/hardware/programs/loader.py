"""A training whose batches come from forked workers: loader.py [FILE [PAUSE]]; appends "step loss" for every step."""
import sys
import time

import torch


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(256, generator=generator)


path = sys.argv[1] if len(sys.argv) > 1 else "/run/torch/loader.txt"
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.05
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(Numbers(), batch_size=64, num_workers=4, pin_memory=True, persistent_workers=True)
for step, batch in enumerate(loader, start=1):
    batch = batch.cuda(non_blocking=True)
    loss = torch.nn.functional.mse_loss(model(batch), batch[:, :4].sum(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with open(path, "a") as file:
        file.write(f"{step} {loss.item():.6f}\n")
    time.sleep(pause)

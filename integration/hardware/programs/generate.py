"""transformers' Llama with random weights, which samples token by token with its cache; appends "step token" to the file."""
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_grad_enabled(False)
config = LlamaConfig(
    hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, vocab_size=32000,
)
with torch.device("cuda"):
    model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
token = torch.zeros(1, 1, dtype=torch.long, device="cuda")
cache = None
for number in range(1, 1_000_000):
    answer = model(token, past_key_values=cache, use_cache=True)
    cache = answer.past_key_values
    token = torch.multinomial(torch.softmax(answer.logits[:, -1].float(), dim=-1), 1)
    with open(sys.argv[1], "a") as file:
        file.write(f"{number} {token.item()}\n")
    # What the cache can hold.
    if number % 2000 == 0:
        cache = None

#!/usr/bin/env python3
"""A Hugging Face model with its gated MLPs through tileglu.

    python3 examples/patch_model.py                     # a small model of random weights
    python3 examples/patch_model.py Qwen/Qwen2.5-0.5B   # a name or folder for transformers
"""

import sys
import time

import torch
import transformers

import tileglu

device = "cuda" if torch.cuda.is_available() else "cpu"
if len(sys.argv) > 1:
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
else:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=1000)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
model = model.eval().to(device)
prompt = torch.randint(3, 1000, (1, 12), generator=torch.Generator().manual_seed(0)).to(device)


def tokens_a_second(count=48):
    started = time.perf_counter()
    model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                   min_new_tokens=count, max_new_tokens=count)
    return count / (time.perf_counter() - started)


tokens_a_second()  # warm up
before = tokens_a_second()
print(tileglu.patch(model))
tokens_a_second()
print(f"{before:.1f} tokens/s unpatched, {tokens_a_second():.1f} patched")
tileglu.unpatch(model)

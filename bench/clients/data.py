# SPDX-License-Identifier: Apache-2.0
"""The files that clients read, and how to know their contents again.

Everything is random, made on the GPU from fixed seeds, so that each process
can make on the GPU what it should have read.

Usage: data.py RAW GIB MODEL GIB, writes both files.
"""

import os
import sys

import torch

MODEL_SEED = 1000


def raw(nbytes, seed=7):
    generator = torch.Generator("cuda").manual_seed(seed)
    words = torch.empty(nbytes // 8, dtype=torch.int64, device="cuda")
    return words.random_(generator=generator).view(torch.uint8)


def tensor(index, shape):
    generator = torch.Generator("cuda").manual_seed(MODEL_SEED + index)
    words = torch.empty(shape, dtype=torch.int16, device="cuda")
    return words.random_(generator=generator).view(torch.bfloat16)


def layout(nbytes):
    """Names and shapes like those of a language model of about nbytes."""
    hidden, inner, kv = 4096, 14336, 1024
    block = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden),
             "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden),
             "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
             "mlp.down_proj": (hidden, inner), "input_layernorm": (hidden,),
             "post_attention_layernorm": (hidden,)}
    shapes = {"model.embed_tokens.weight": (32000, hidden), "model.norm.weight": (hidden,)}
    total = 2 * (32000 * hidden + hidden)
    layer = 0
    while total < nbytes:
        for name, shape in block.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
            total += 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        layer += 1
    return shapes


def expect_model(tensors, nbytes):
    """Every tensor of the model is there and has its bytes, on the GPU."""
    shapes = layout(nbytes)
    missing = set(shapes) ^ set(tensors)
    if missing:
        raise AssertionError(f"tensors differ: {sorted(missing)[:3]}")
    for index, (name, shape) in enumerate(shapes.items()):
        got = tensors[name]
        if got.device.type != "cuda" or tuple(got.shape) != shape or got.dtype != torch.bfloat16:
            raise AssertionError(f"{name}: {got.device} {tuple(got.shape)} {got.dtype}")
        if not torch.equal(got.view(torch.int16), tensor(index, shape).view(torch.int16)):
            raise AssertionError(f"{name}: other bytes than were saved")


def write(raw_path, raw_bytes, model_path, model_bytes):
    from safetensors.torch import save_file

    raw(raw_bytes).cpu().numpy().tofile(raw_path)
    save_file({name: tensor(index, shape).cpu()
               for index, (name, shape) in enumerate(layout(model_bytes).items())}, model_path)
    os.sync()


if __name__ == "__main__":
    write(sys.argv[1], int(float(sys.argv[2]) * 2**30), sys.argv[3],
          int(float(sys.argv[4]) * 2**30))

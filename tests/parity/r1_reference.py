#!/usr/bin/env python3
"""PyTorch's losses and gradient norms for a mixed-precision run: the reference for parity at full width.

    r1_reference.py --model DIR --tokens FILE [--dtype uint32] [--seq-len 1024] [--batch 8] [--steps 10] [--lr 1e-5]

DIR is a Hugging Face directory (`megatrain train` with `steps: 0` exports one). Weights are bfloat16 in forward and
backward, the optimizer's masters are float32, a step's gradient is summed in float32 over its micro-batches and rounded
once to bfloat16 before norm, clipping and AdamW. The loss is the mean over the step's trained tokens. Sequence i is
tokens [i*S, (i+1)*S), taken in order. One JSON object a step goes to stdout: step, loss, grad_norm, seconds.

    r1_reference.py --write-config DIR [--layers 2]

writes DIR/config.json: a Qwen2 model of R1's width with that many layers.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 3584,
          "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
          "tie_word_embeddings": False, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6,
          "max_position_embeddings": 32768, "initializer_range": 0.02, "attention_dropout": 0.0,
          "use_sliding_window": False, "use_cache": True, "bos_token_id": 151643, "eos_token_id": 151643,
          "torch_dtype": "bfloat16"}


def write_config(directory, layers):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}, indent=2) + "\n")


class MasterWeights:
    """float32 masters and gradient sums beside a bfloat16 (or float32) model; a parameter's own .grad lives for one
    micro-batch."""

    def __init__(self, model, options):
        self.pairs = [(p, p.detach().to(torch.float32, copy=True)) for p in model.parameters()]
        for parameter, master in self.pairs:
            master.grad = torch.zeros_like(master)
            parameter.register_post_accumulate_grad_hook(lambda p, sum=master.grad: self.take(p, sum))
        masters = [master for _, master in self.pairs]
        groups = [{"params": [m for m in masters if m.dim() >= 2], "weight_decay": options.weight_decay},
                  {"params": [m for m in masters if m.dim() < 2], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=options.lr, betas=(options.beta1, options.beta2),
                                           eps=options.eps, foreach=False)

    @staticmethod
    def take(parameter, sum):
        sum.add_(parameter.grad)  # bfloat16 into float32
        parameter.grad = None

    @torch.no_grad()
    def step(self, clip):
        """Returns the gradient norm before clipping."""
        squares = torch.zeros((), dtype=torch.float64)
        for parameter, master in self.pairs:
            master.grad.copy_(master.grad.to(parameter.dtype))
            squares += torch.linalg.vector_norm(master.grad, dtype=torch.float64).cpu() ** 2
        norm = squares.sqrt().item()
        if clip > 0 and norm > clip:
            for _, master in self.pairs:
                master.grad.mul_(clip / (norm + 1e-6))
        self.optimizer.step()
        for parameter, master in self.pairs:
            parameter.copy_(master)
            master.grad.zero_()
        return norm


def head_backward(model, hidden, labels, trained, chunk):
    """Backward of a sum of token losses over `trained`, from the last hidden states (T, H) and labels (T), `chunk`
    positions of logits at a time. Returns the sum, float64 on the device."""
    leaf = hidden.detach().requires_grad_()
    total = torch.zeros((), dtype=torch.float64, device=hidden.device)
    for begin in range(0, len(labels), chunk):
        logits = model.lm_head(leaf[begin:begin + chunk]).float()
        loss = torch.nn.functional.cross_entropy(logits, labels[begin:begin + chunk], reduction="sum")
        (loss / trained).backward()
        total += loss.detach()
    hidden.backward(leaf.grad)
    return total


def sequence_loss(model, tokens, trained, chunk):
    """Backward of a micro-batch's part of the step's mean, `chunk` positions of logits at a time. tokens (rows, S).
    Returns the sum of its token losses."""
    hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1].flatten(0, 1)
    labels = tokens[:, 1:].flatten()
    return head_backward(model, hidden, labels, trained, chunk).item()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--write-config", type=Path)
    arguments.add_argument("--layers", type=int, default=2)
    arguments.add_argument("--model", type=Path)
    arguments.add_argument("--tokens", type=Path)
    arguments.add_argument("--dtype", choices=("uint16", "uint32"), default="uint32")
    arguments.add_argument("--seq-len", type=int, default=1024)
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--micro-batch", type=int, default=1)
    arguments.add_argument("--steps", type=int, default=10)
    arguments.add_argument("--lr", type=float, default=1e-5)
    arguments.add_argument("--beta1", type=float, default=0.9)
    arguments.add_argument("--beta2", type=float, default=0.999)
    arguments.add_argument("--eps", type=float, default=1e-8)
    arguments.add_argument("--weight-decay", type=float, default=0.01)
    arguments.add_argument("--clip", type=float, default=1.0)
    arguments.add_argument("--head-chunk", type=int, default=1024, help="positions whose logits exist at once")
    options = arguments.parse_args()
    if options.write_config:
        write_config(options.write_config, options.layers)
        return 0
    if not options.model or not options.tokens:
        arguments.error("--model and --tokens are needed")
    if options.batch % options.micro_batch:
        arguments.error("--micro-batch must divide --batch")

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16, attn_implementation="sdpa")
    model = model.to(device).train()
    masters = MasterWeights(model, options)

    size = options.seq_len
    tokens = np.fromfile(options.tokens, np.dtype(options.dtype).newbyteorder("<"))
    sequences = len(tokens) // size
    if sequences < options.batch * options.steps:
        sys.exit(f"{options.tokens} holds {sequences} sequences of {size} tokens; "
                 f"{options.steps} steps of {options.batch} need {options.batch * options.steps}")
    tokens = torch.from_numpy(tokens[:sequences * size].astype(np.int64)).view(sequences, size)

    trained = options.batch * (size - 1)
    for step in range(options.steps):
        start = time.perf_counter()
        rows = tokens[step * options.batch:(step + 1) * options.batch].to(device)
        total = sum(sequence_loss(model, part, trained, options.head_chunk)
                    for part in rows.split(options.micro_batch))
        norm = masters.step(options.clip)
        print(json.dumps({"step": step + 1, "loss": total / trained, "grad_norm": norm,
                          "seconds": time.perf_counter() - start}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A dense decoder in plain torch, of the shape `megatrain bench step` trains: Qwen2's block (bias on q, k, v)."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


def rotate(x, cos, sin):
    """x (B, heads, S, D); cos, sin (S, D / 2)."""
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, shape, recompute):
        super().__init__()
        self.recompute = recompute
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self.norm = Norm(shape.hidden)
        self.qkv = nn.Linear(shape.hidden, (shape.heads + 2 * shape.kv_heads) * shape.head_dim)
        self.o = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)
        self.post_norm = Norm(shape.hidden)
        self.gate_up = nn.Linear(shape.hidden, 2 * shape.ff, bias=False)
        self.down = nn.Linear(shape.ff, shape.hidden, bias=False)

    def forward(self, x, cos, sin):
        # inside the module, so that a wrapper has already cast the inputs
        return checkpoint(self.run, x, cos, sin, use_reentrant=False) if self.recompute else self.run(x, cos, sin)

    def run(self, x, cos, sin):
        batch, tokens, _ = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, tokens, -1, self.head_dim).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), 1)
        attended = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                                  enable_gqa=True)
        x = x + self.o(attended.transpose(1, 2).reshape(batch, tokens, -1))
        gate, up = self.gate_up(self.post_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, shape, recompute):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape, recompute) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        self.head_dim = shape.head_dim

    def forward(self, tokens):
        """The sum of the token losses of (B, S) tokens, every position but the last of a sequence trained."""
        steps = torch.arange(0, self.head_dim, 2, device=tokens.device, dtype=torch.float32)
        angles = torch.outer(torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32),
                             1e6 ** (-steps / self.head_dim))
        cos, sin = angles.cos(), angles.sin()
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x[:, :-1]))
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="sum")


@torch.no_grad()
def fill_randomly(model, device):
    """normal(0, 0.02) for matrices, ones for norms, zeros for biases; drawn on `device`, wherever the parameters are."""
    for name, parameter in model.named_parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        if "norm" in name:
            local.fill_(1)
        elif local.dim() == 1:
            local.zero_()
        else:
            for row in local.split(8192):
                row.copy_(torch.randn(row.shape, device=device, dtype=torch.float32) * 0.02)

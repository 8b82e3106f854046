"""ViT-Lite: Hassani et al., "Escaping the Big Data Paradigm with Compact Transformers", 2021.

Pre-norm encoder with a class token and learned positions; width 256, 4 heads, MLP ratio 2,
queries, keys and values without bias. Seven layers on 4 x 4 patches of 32 x 32 x 3 are the
paper's ViT-Lite-7/4 (3.72 M parameters), six are ViT-Lite-6/4 (3.19 M). HF-KCU's 3.4 M is
neither and is not explained there. Dropout and stochastic depth are left out: training has no
random state apart from the order of the rows.
"""

import torch
from torch import nn
from torch.nn import functional

from workers.errors import RefusedError
from workers.training.networks.base import Architecture, divides, image, positive, transformer

DEEPEST = 256  # creating a layer takes time before its weights can be counted


class VitLayer(nn.Module):
    """One encoder layer on tokens (n, t, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.contract = nn.Linear(2 * width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return tokens (n, t, width)."""
        n, t, width = tokens.shape
        qkv = self.qkv(self.attention_norm(tokens)).view(n, t, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = attention(query, key, value).transpose(1, 2).reshape(n, t, width)
        tokens = tokens + self.out(mixed)
        expanded = functional.gelu(self.expand(self.mlp_norm(tokens)))
        added: torch.Tensor = tokens + self.contract(expanded)
        return added


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return softmax(QKᵀ/√d) V for (n, heads, t, d).

    Written out: the fused kernels have no second derivative, which Hessian-vector products
    need, and on CUDA no deterministic gradient.
    """
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    mixed: torch.Tensor = scores.softmax(-1) @ value
    return mixed


class ViTLite(nn.Module):
    """Logits (n, classes) of images whose sides are multiples of the patch."""

    def __init__(
        self,
        channels: int,
        height: int,
        width: int,
        classes: int,
        patch: int,
        layers: int,
        embedding: int,
        heads: int,
    ) -> None:
        positive(channels=channels, classes=classes, patch=patch, layers=layers, heads=heads)
        if layers > DEEPEST:
            raise RefusedError(f"layers must be at most {DEEPEST}")
        divides(patch, height=height, width=width)
        divides(heads, embedding=embedding)
        super().__init__()
        self.patches = nn.Conv2d(channels, embedding, patch, patch)
        tokens = (height // patch) * (width // patch) + 1
        self.token = nn.Parameter(torch.empty(1, 1, embedding))
        self.positions = nn.Parameter(torch.empty(1, tokens, embedding))
        self.layers = nn.Sequential(*[VitLayer(embedding, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(embedding)
        self.head = nn.Linear(embedding, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits (n, classes)."""
        patches = self.patches(inputs).flatten(2).transpose(1, 2)
        first = self.token.expand(patches.shape[0], -1, -1)
        tokens = self.layers(torch.cat([first, patches], 1) + self.positions)
        logits: torch.Tensor = self.head(self.norm(tokens)[:, 0])
        return logits


ARCHITECTURE = Architecture(
    "vit-lite",
    {
        "channels": 3,
        "height": 32,
        "width": 32,
        "classes": 10,
        "patch": 4,
        "layers": 7,
        "embedding": 256,
        "heads": 4,
    },
    ViTLite,
    transformer,
    image,
)

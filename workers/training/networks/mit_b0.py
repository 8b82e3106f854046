"""MiT-B0: the smallest encoder of SegFormer (Xie et al., NeurIPS 2021), with either head.

Four stages of two layers with widths 32, 64, 160, 256; overlapping patches; attention on
keys reduced 8, 4, 2, 1 times a side; a depthwise 3 x 3 convolution inside the MLP in place of
positions, so any image size will do. 3,319,392 parameters without a head; PUF counts these
alone (Table III: 1.33e7 bytes). No drop path; the head's fusion is normalised in groups
where SegFormer has batch statistics (see resnet18.py), with as many parameters.
"""

import torch
from torch import nn
from torch.nn import functional

from workers.errors import RefusedError
from workers.training.networks.base import Architecture, image, positive, transformer
from workers.training.networks.vit_lite import attention

WIDTHS, HEADS, REDUCTIONS, LAYERS = (32, 64, 160, 256), (1, 2, 5, 8), (8, 4, 2, 1), 2
DECODER = 256
EPS = 1e-6


class Tokens(nn.Module):
    """Overlapping patches: (n, c, h, w) to (n, width, h / stride, w / stride), normalised."""

    def __init__(self, inputs: int, width: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, width, kernel, stride, kernel // 2)
        self.norm = nn.LayerNorm(width, EPS)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return (n, width, h', w')."""
        return normalised(self.norm, self.conv(inputs))


class MitLayer(nn.Module):
    """Attention over all positions with keys at a reduced resolution, then a Mix-FFN."""

    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width, EPS)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.reduce: nn.Module | None = None
        if reduction > 1:
            self.reduce = nn.Conv2d(width, width, reduction, reduction)
            self.reduce_norm = nn.LayerNorm(width, EPS)
        self.reduction = reduction
        self.mlp_norm = nn.LayerNorm(width, EPS)
        self.expand = nn.Linear(width, 4 * width)
        self.mix = nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return (n, width, h, w)."""
        n, width, h, w = inputs.shape
        tokens = inputs.flatten(2).transpose(1, 2)
        clean = self.attention_norm(tokens)
        keys = clean
        if self.reduce is not None:
            grid = clean.transpose(1, 2).reshape(n, width, h, w)
            # A grid smaller than the kernel is one key, not none.
            short_h, short_w = max(0, self.reduction - h), max(0, self.reduction - w)
            grid = functional.pad(grid, (0, short_w, 0, short_h))
            keys = self.reduce_norm(self.reduce(grid).flatten(2).transpose(1, 2))
        query = self.query(clean).view(n, h * w, self.heads, -1).transpose(1, 2)
        pairs = self.key_value(keys).view(n, keys.shape[1], 2, self.heads, -1)
        key, value = pairs.permute(2, 0, 3, 1, 4)
        mixed = attention(query, key, value).transpose(1, 2).reshape(n, h * w, width)
        tokens = tokens + self.out(mixed)
        wide = self.expand(self.mlp_norm(tokens)).transpose(1, 2).reshape(n, -1, h, w)
        wide = functional.gelu(self.mix(wide).flatten(2).transpose(1, 2))
        tokens = tokens + self.contract(wide)
        mapped: torch.Tensor = tokens.transpose(1, 2).reshape(n, width, h, w)
        return mapped


class Encoder(nn.Module):
    """Four feature maps, at 1/4, 1/8, 1/16 and 1/32 of the image's sides, rounded up."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        patches, stages, norms, inputs = [], [], [], channels
        for stage, width in enumerate(WIDTHS):
            kernel, stride = (7, 4) if stage == 0 else (3, 2)
            patches.append(Tokens(inputs, width, kernel, stride))
            pair = [MitLayer(width, HEADS[stage], REDUCTIONS[stage]) for _ in range(LAYERS)]
            stages.append(nn.Sequential(*pair))
            norms.append(nn.LayerNorm(width, EPS))
            inputs = width
        self.patches, self.stages = nn.ModuleList(patches), nn.ModuleList(stages)
        self.norms = nn.ModuleList(norms)

    def forward(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        """Return (n, width, h, w) of each stage."""
        maps, current = [], inputs
        for patch, stage, norm in zip(self.patches, self.stages, self.norms, strict=True):
            current = normalised(norm, stage(patch(current)))
            maps.append(current)
        return maps


class MiTB0(nn.Module):
    """Logits (n, classes), or with `segment` 1 (n, classes, height, width)."""

    def __init__(
        self, channels: int, height: int, width: int, classes: int, segment: int
    ) -> None:
        positive(channels=channels, height=height, width=width, classes=classes)
        if segment not in (0, 1):
            raise RefusedError("mit-b0: segment must be 0 or 1")
        super().__init__()
        self.encoder = Encoder(channels)
        self.segment = segment
        if segment:
            self.project = nn.ModuleList(nn.Linear(wide, DECODER) for wide in WIDTHS)
            self.fuse = nn.Conv2d(len(WIDTHS) * DECODER, DECODER, 1, bias=False)
            self.fuse_norm = nn.GroupNorm(2, DECODER)
            self.pixels = nn.Conv2d(DECODER, classes, 1)
        else:
            self.head = nn.Linear(WIDTHS[-1], classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        maps = self.encoder(inputs)
        if not self.segment:
            logits: torch.Tensor = self.head(maps[-1].mean((2, 3)))
            return logits
        size, parts = maps[0].shape[2:], []
        for layer, features in zip(self.project, maps, strict=True):
            wide = layer(features.movedim(1, -1)).movedim(-1, 1)
            parts.append(resized(wide, size))
        fused = torch.relu(self.fuse_norm(self.fuse(torch.cat(parts[::-1], 1))))
        return resized(self.pixels(fused), inputs.shape[2:])


def normalised(norm: nn.Module, features: torch.Tensor) -> torch.Tensor:
    """Return a layer norm over the channels of (n, c, h, w)."""
    clean: torch.Tensor = norm(features.movedim(1, -1))
    return clean.movedim(-1, 1)


def resized(features: torch.Tensor, size: torch.Size) -> torch.Tensor:
    """Return (n, c, *size), bilinear; torch has a deterministic gradient for it if asked."""
    return functional.interpolate(features, list(size), mode="bilinear", align_corners=False)


ARCHITECTURE = Architecture(
    "mit-b0",
    {"channels": 3, "height": 224, "width": 224, "classes": 10, "segment": 0},
    MiTB0,
    transformer,
    image,
    lambda shape: "segmentation" if shape["segment"] else "classification",
)

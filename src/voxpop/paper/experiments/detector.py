"""A small single shot detector in plain PyTorch, trained from nothing on labelled boxes.

In the manner of SSD (Liu et al., 2016): anchors on grids of three strides, one convolution that
says for each anchor what it shows and how far off it lies, cross-entropy with the hardest
negatives and smooth L1. Unlike there nothing is learned beforehand: the backbone is a dozen
convolutions with batch normalisation, and coarse features are added to the finer ones. It imports
nothing but numpy and, where used, torch, so that it can be run on a machine that has no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index
from voxpop.errors import require
from voxpop.paper.experiments.boxes import (
    Picture,
    decode,
    encode,
    make_anchors,
    match,
    suppress,
    tidy,
)

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, ModuleList

Pixels = NDArray[np.uint8]
"""Pictures of one size: (pictures, rows, columns, 3)."""
STRIDES = (8, 16, 32)
# Width and height of the anchors of a cell, in strides: two squares, an upright and a lying box.
_SHAPES = np.array([[2.2, 2.2], [3.2, 3.2], [2.1, 3.4], [3.4, 2.1]])
# Background that counts for each object, as in SSD.
_NEGATIVES = 3
# What a found object must score at least, share at most with a surer one, and how many are kept:
# low enough for average precision to see the whole curve.
_LEAST_SCORE, _MOST_SHARED, _MOST_FOUND = 0.02, 0.45, 100
# Pictures are seen larger or smaller by up to this factor, shifted by up to this share of half
# their size, and in a light that differs by up to this share.
_ZOOM, _SHIFT, _LIGHT = 1.25, 0.15, 0.2


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a detector is trained; channels are those of the coarser grids."""

    steps: int = 1200
    batch: int = 16
    rate: float = 2e-3
    decay: float = 1e-3
    channels: int = 192

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "channels"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.rate > 0, f"rate must be positive, got {self.rate}")
        require(self.decay >= 0, f"decay must not be negative, got {self.decay}")
        require(self.channels % 4 == 0, f"channels must be a multiple of 4, got {self.channels}")


@dataclass(frozen=True, kw_only=True)
class Network:
    """Stages that halve the picture, and for the last three a side way and a head."""

    stages: ModuleList
    sides: ModuleList
    heads: ModuleList
    whole: ModuleList


@dataclass(frozen=True, kw_only=True)
class Detector:
    """A trained network and the pictures it is for."""

    network: Network
    anchor: Floats
    rows: int
    columns: int

    def find(self, pixels: Pixels) -> list[Picture]:
        """Objects in each picture, the surest of a kind first."""
        import torch

        self.network.whole.eval()
        found = []
        with torch.no_grad():
            for start in range(0, len(pixels), 16):
                kind, offset = _answer(self.network, self._tensor(pixels[start : start + 16]))
                chance = kind.float().softmax(dim=2)[:, :, 1:].cpu().numpy().astype(np.float64)
                away = offset.float().cpu().numpy().astype(np.float64)
                found += [self._picture(c, a) for c, a in zip(chance, away, strict=True)]
        return found

    def _tensor(self, pixels: Pixels) -> Tensor:
        return _prepare(_upload(pixels, next(self.network.whole.parameters()).device))

    def _picture(self, chance: Floats, offset: Floats) -> Picture:
        parts = []
        for kind in range(chance.shape[1]):
            score = chance[:, kind]
            some = np.argsort(-score, kind="stable")[: 3 * _MOST_FOUND]
            some = some[score[some] >= _LEAST_SCORE]
            box = tidy(decode(offset[some], self.anchor[some]), self.columns, self.rows)
            kept = suppress(box, score[some], _MOST_SHARED)[:_MOST_FOUND]
            parts.append((box[kept], np.full(len(kept), kind), score[some][kept]))
        box, number, score = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Picture(box=box, kind=number.astype(np.int64), score=score)


def train(
    pixels: Pixels, labels: Sequence[Picture], n_kinds: int, seed: int, recipe: Recipe, device: str
) -> Detector:
    """Train a detector on pictures with labelled boxes.

    The same seed gives the same first weights, the same order and the same cut-outs whatever the
    labels are, so that two ways of labelling can be compared pair by pair.
    """
    import torch

    rows, columns = pixels.shape[1:3]
    anchor = anchors_of(rows, columns)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make_network(n_kinds, recipe.channels)
    network.whole.to(device)
    for weight in network.whole.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    network.whole.train()
    optimiser = torch.optim.AdamW(
        network.whole.parameters(), recipe.rate, weight_decay=recipe.decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, recipe.steps))
    pictures = _upload(pixels, torch.device(device))
    rng = np.random.default_rng(seed)
    half = torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu")
    for chosen in _batches(len(pixels), recipe, rng):
        view = draw_views(len(chosen), rng)
        kind, offset = _targets([labels[i] for i in chosen], view, anchor, (columns, rows))
        light = torch.from_numpy(1 + _LIGHT * rng.uniform(-1, 1, (2, len(chosen), 3, 1, 1)))
        seen = _look(_prepare(pictures[torch.from_numpy(chosen).to(device)]), view, light)
        with half:
            answer = _answer(network, seen)
        loss = _loss(
            *answer, torch.from_numpy(kind).to(device), torch.from_numpy(offset).to(device)
        )
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        schedule.step()
    return Detector(network=network, anchor=anchor, rows=rows, columns=columns)


def anchors_of(rows: int, columns: int) -> Floats:
    """Anchors of a picture of so many pixels."""
    grids = [(math.ceil(rows / s), math.ceil(columns / s), s) for s in STRIDES]
    return make_anchors(grids, [s * _SHAPES for s in STRIDES])


def _rate(step: int, steps: int) -> float:
    """Share of the learning rate: up within a twentieth of the steps, down along a cosine."""
    rise = max(steps // 20, 1)
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(steps - rise, 1)))


def _batches(n_pictures: int, recipe: Recipe, rng: np.random.Generator) -> list[Index]:
    """Pictures of each step; each comes once before any comes again."""
    rounds = math.ceil(recipe.steps * recipe.batch / n_pictures)
    order = np.concatenate([rng.permutation(n_pictures) for _ in range(rounds)])
    return list(order[: recipe.steps * recipe.batch].reshape(recipe.steps, recipe.batch))


# ---- Views: flipped, zoomed, shifted ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Views:
    """How each picture is seen: what is at p in the view is at ``scale`` p + ``shift`` in it.

    Both places are in units of half a picture from its centre; a negative scale flips.
    """

    scale: Floats
    shift: Floats

    def boxes(self, number: int, box: Floats, size: tuple[int, int]) -> Floats:
        """Corners, in pixels of the view, of boxes given in pixels of the picture."""
        half = np.array(size) / 2
        points = box.reshape(-1, 2, 2) / half - 1
        seen = (points - self.shift[number]) / self.scale[number]
        return np.asarray(((seen + 1) * half).reshape(-1, 4))


def draw_views(number: int, rng: np.random.Generator) -> Views:
    """Flip either way, zoom and shift at random."""
    flip = rng.choice([-1.0, 1.0], size=(number, 2))
    zoom = _ZOOM ** rng.uniform(-1, 1, size=(number, 1))
    return Views(scale=flip * zoom, shift=_SHIFT * rng.uniform(-1, 1, size=(number, 2)))


def seen_labels(label: Picture, views: Views, number: int, size: tuple[int, int]) -> Picture:
    """Labels as the view shows them, those left out whose centre is outside."""
    corners = views.boxes(number, label.box, size)
    centre = (corners[:, :2] + corners[:, 2:]) / 2
    inside = ((centre > 0) & (centre < np.array(size))).all(axis=1)
    box = tidy(corners[inside], *size)
    return Picture(box=box, kind=label.kind[inside], score=label.score[inside])


def _targets(
    labels: Sequence[Picture], views: Views, anchor: Floats, size: tuple[int, int]
) -> tuple[Index, NDArray[np.float32]]:
    """What each anchor should say: 0 for background or kind + 1, and its box's offsets."""
    kind = np.zeros((len(labels), len(anchor)), dtype=np.int64)
    offset = np.zeros((len(labels), len(anchor), 4), dtype=np.float32)
    for number, label in enumerate(labels):
        seen = seen_labels(label, views, number, size)
        owner = match(seen.box, anchor)
        some = owner >= 0
        kind[number, some] = seen.kind[owner[some]] + 1
        offset[number, some] = encode(seen.box[owner[some]], anchor[some])
    return kind, offset


def _upload(pixels: Pixels, device: object) -> Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))).to(str(device))


def _prepare(pictures: Tensor) -> Tensor:
    """Numbers about zero; what lies outside a view becomes the middle grey."""
    import torch

    return ((pictures.float() - 128) / 64).contiguous(memory_format=torch.channels_last)


def _look(pictures: Tensor, views: Views, light: Tensor) -> Tensor:
    """Show pictures as the views have it, in another light (contrast, then brightness)."""
    import torch
    from torch.nn.functional import affine_grid, grid_sample

    turn = np.zeros((len(pictures), 2, 3), dtype=np.float32)
    turn[:, [0, 1], [0, 1]] = views.scale
    turn[:, :, 2] = views.shift
    shape = list(pictures.shape)
    grid = affine_grid(torch.from_numpy(turn).to(pictures.device), shape, align_corners=False)
    seen = grid_sample(pictures, grid, align_corners=False)
    contrast, brightness = light.float().to(pictures.device)
    lit: Tensor = seen * contrast + brightness - 1
    return lit.contiguous(memory_format=torch.channels_last)


# ---- The network and its loss -------------------------------------------------------------------


def make_network(n_kinds: int, channels: int) -> Network:
    """Stages that halve the picture five times, and a head for each of the last three."""
    from torch import nn

    def layer(n_in: int, n_out: int, stride: int = 1) -> list[Module]:
        convolution = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]

    small, middle = channels // 4, channels // 2
    widths = (small, small, middle, channels, channels)
    depths = (1, 2, 3, 3, 2)
    stages, n_in = [], 3
    for width, depth in zip(widths, depths, strict=True):
        layers = layer(n_in, width, 2)
        for _ in range(depth - 1):
            layers += layer(width, width)
        stages.append(nn.Sequential(*layers))
        n_in = width
    sides = [nn.Conv2d(width, middle, 1) for width in widths[2:]]
    answers = len(_SHAPES) * (n_kinds + 1 + 4)
    heads = [nn.Sequential(*layer(middle, middle), nn.Conv2d(middle, answers, 1)) for _ in sides]
    parts = [nn.ModuleList(some) for some in (stages, sides, heads)]
    return Network(stages=parts[0], sides=parts[1], heads=parts[2], whole=nn.ModuleList(parts))


def _answer(network: Network, pictures: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of the kinds (background first) and offsets for all anchors of each picture."""
    import torch
    from torch.nn.functional import interpolate

    features, seen = [], pictures
    for stage in network.stages:
        seen = stage(seen)
        features.append(seen)
    answers: list[Tensor] = []
    coarser = None
    for feature, side, head in reversed(
        list(zip(features[2:], network.sides, network.heads, strict=True))
    ):
        here = side(feature)
        if coarser is not None:
            here = here + interpolate(coarser, size=here.shape[2:])
        coarser = here
        said = head(here).permute(0, 2, 3, 1)  # rows, columns, then the shapes of a cell
        answers.insert(0, said.reshape(len(pictures), -1, said.shape[3] // len(_SHAPES)))
    joined = torch.cat(answers, dim=1)
    return joined[:, :, :-4], joined[:, :, -4:]


def _loss(kind: Tensor, offset: Tensor, true_kind: Tensor, true_offset: Tensor) -> Tensor:
    """Cross-entropy of objects and of the hardest background, and smooth L1 of the offsets."""
    from torch.nn.functional import cross_entropy, smooth_l1_loss

    surprise = cross_entropy(kind.float().transpose(1, 2), true_kind, reduction="none")
    is_object = true_kind > 0
    n_objects = is_object.sum(dim=1, keepdim=True)
    background = surprise.detach().masked_fill(is_object, -1.0)
    rank = background.argsort(dim=1, descending=True).argsort(dim=1)
    counted = is_object | (rank < _NEGATIVES * n_objects.clamp(min=1))
    away = smooth_l1_loss(offset.float(), true_offset, reduction="none").sum(dim=2)
    total = (surprise * counted).sum() + (away * is_object).sum()
    return total / n_objects.sum().clamp(min=1)

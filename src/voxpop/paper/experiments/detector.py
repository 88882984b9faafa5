"""A small single shot detector in plain PyTorch, trained from scratch on labelled boxes.

In the manner of SSD (Liu et al., 2016): anchors on grids of three strides, one convolution that
gives the category and the offset of each anchor, cross-entropy with hard negatives and smooth L1.
Unlike SSD nothing is pretrained: the backbone is a dozen convolutions with batch normalisation,
and coarse features are added to the finer ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index
from voxpop.paper.experiments.boxes import (
    ImageObjects,
    boxes_from_corners,
    decode,
    encode,
    match_anchors,
    non_maximum_suppression,
)

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, ModuleDict

Pixels = NDArray[np.uint8]
"""Images of one size: (images, rows, columns, 3)."""
STRIDES = (8, 16, 32)
# Width and height of the anchors of a cell, in strides: two squares, an upright and a lying box.
_SHAPES = np.array([[2.2, 2.2], [3.2, 3.2], [2.1, 3.4], [3.4, 2.1]])
# Hard negatives per object in the loss, as in SSD.
_NEGATIVES = 3
# Minimum score of a detection, maximum IoU with a better one, and number kept per category: low
# enough a score for average precision to see the whole curve.
_MIN_SCORE, _MAX_IOU, _MAX_DETECTIONS = 0.02, 0.45, 100
# Augmentation: zoom by up to this factor either way, shift by up to this share of half the image,
# contrast and brightness changed by up to this share.
_ZOOM, _SHIFT, _LIGHT = 1.25, 0.15, 0.2


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a detector is trained; channels, a multiple of 4, are those of the coarser grids.

    Its repr is part of the stamp of stored instances: a new name or field would train them again.
    """

    steps: int = 1200
    batch: int = 16
    rate: float = 2e-3
    decay: float = 1e-3
    channels: int = 192


@dataclass(frozen=True, kw_only=True)
class Detector:
    """A trained network and the size of the images it is for."""

    network: ModuleDict
    anchor: Floats
    rows: int
    columns: int

    def detect(self, pixels: Pixels) -> list[ImageObjects]:
        """Objects in each image, by category and descending score."""
        import torch

        self.network.eval()
        device = next(self.network.parameters()).device
        found = []
        with torch.no_grad():
            for start in range(0, len(pixels), 16):
                batch = _normalise(_upload(pixels[start : start + 16], device))
                logits, offset = _forward(self.network, batch)
                chance = logits.float().softmax(dim=2)[:, :, 1:]
                pair = (part.float().cpu().numpy().astype(np.float64) for part in (chance, offset))
                found += [self._objects(*one) for one in zip(*pair, strict=True)]
        return found

    def _objects(self, chance: Floats, offset: Floats) -> ImageObjects:
        parts = []
        for category, score in enumerate(chance.T):
            some = np.argsort(-score, kind="stable")[: 3 * _MAX_DETECTIONS]
            some = some[score[some] >= _MIN_SCORE]
            corners = decode(offset[some], self.anchor[some])
            box = boxes_from_corners(corners, self.columns, self.rows)
            kept = non_maximum_suppression(box, score[some], _MAX_IOU)[:_MAX_DETECTIONS]
            parts.append((box[kept], np.full(len(kept), category), score[some][kept]))
        box, number, score = (np.concatenate(part) for part in zip(*parts, strict=True))
        return ImageObjects(box=box, category=number.astype(np.int64), score=score)


def train(
    pixels: Pixels,
    labels: Sequence[ImageObjects],
    n_categories: int,
    seed: int,
    recipe: Recipe,
    device: str,
) -> Detector:
    """Train a detector on images with labelled boxes.

    The same seed gives the same first weights, order of images and augmentation whatever the
    labels are, so that detectors trained on different labels can be compared pair by pair.
    """
    import torch

    rows, columns = pixels.shape[1:3]
    anchor = make_anchors(rows, columns)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make_network(n_categories, recipe.channels)
    network.to(device, memory_format=torch.channels_last).train()
    optimiser = torch.optim.AdamW(network.parameters(), recipe.rate, weight_decay=recipe.decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, recipe.steps))
    images = _upload(pixels, device)
    rng = np.random.default_rng(seed)
    half = torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu")
    for chosen in _batches(len(pixels), recipe, rng):
        augmentation = draw_augmentation(len(chosen), rng)
        some = [labels[i] for i in chosen]
        targets = _targets(some, augmentation, anchor, (columns, rows))
        light = torch.from_numpy(1 + _LIGHT * rng.uniform(-1, 1, (2, len(chosen), 3, 1, 1)))
        batch = _normalise(images[torch.from_numpy(chosen).to(device)])
        with half:
            outputs = _forward(network, _augment(batch, augmentation, light))
        loss = _loss(*outputs, *(torch.from_numpy(target).to(device) for target in targets))
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        schedule.step()
    return Detector(network=network, anchor=anchor, rows=rows, columns=columns)


def make_anchors(rows: int, columns: int) -> Floats:
    """Boxes of all shapes at the centre of each cell of each grid, for an image of this size.

    They are ordered by grid, row, column and shape, like the outputs of the network.
    """
    parts = []
    for stride in STRIDES:
        y, x = np.mgrid[: math.ceil(rows / stride), : math.ceil(columns / stride)]
        centre = (np.stack([x, y], axis=2).reshape(-1, 1, 2) + 0.5) * stride
        half = stride * _SHAPES / 2
        parts.append(np.concatenate([centre - half, centre + half], axis=2).reshape(-1, 4))
    return np.concatenate(parts)


def _rate(step: int, steps: int) -> float:
    """Factor of the learning rate: linear warm-up over a twentieth of the steps, then a cosine."""
    rise = max(steps // 20, 1)
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(steps - rise, 1)))


def _batches(n_images: int, recipe: Recipe, rng: np.random.Generator) -> list[Index]:
    """Images of each step; each comes once before any comes again."""
    rounds = math.ceil(recipe.steps * recipe.batch / n_images)
    order = np.concatenate([rng.permutation(n_images) for _ in range(rounds)])
    return list(order[: recipe.steps * recipe.batch].reshape(recipe.steps, recipe.batch))


# ---- Augmentation: flips, zoom and shift --------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How each image of a batch is transformed: its point ``scale`` p + ``shift`` goes to p.

    Both points are in units of half an image from its centre; a negative scale flips.
    """

    scale: Floats
    shift: Floats

    def boxes(self, number: int, box: Floats, size: tuple[int, int]) -> Floats:
        """Transform the corners of boxes in one image, in pixels."""
        half = np.array(size) / 2
        points = box.reshape(-1, 2, 2) / half - 1
        seen = (points - self.shift[number]) / self.scale[number]
        return np.asarray(((seen + 1) * half).reshape(-1, 4))

    def labels(self, number: int, label: ImageObjects, size: tuple[int, int]) -> ImageObjects:
        """Transform the labels of one image; those whose centre falls outside are left out."""
        corners = self.boxes(number, label.box, size)
        centre = (corners[:, :2] + corners[:, 2:]) / 2
        inside = ((centre > 0) & (centre < np.array(size))).all(axis=1)
        box = boxes_from_corners(corners[inside], *size)
        return ImageObjects(box=box, category=label.category[inside], score=label.score[inside])


def draw_augmentation(n_images: int, rng: np.random.Generator) -> Augmentation:
    """Flip either way, zoom and shift at random."""
    flip = rng.choice([-1.0, 1.0], size=(n_images, 2))
    zoom = _ZOOM ** rng.uniform(-1, 1, size=(n_images, 1))
    return Augmentation(scale=flip * zoom, shift=_SHIFT * rng.uniform(-1, 1, size=(n_images, 2)))


def _targets(
    labels: Sequence[ImageObjects],
    augmentation: Augmentation,
    anchor: Floats,
    size: tuple[int, int],
) -> tuple[Index, NDArray[np.float32]]:
    """Targets of each anchor: 0 for background or category + 1, and the offsets of its box."""
    category = np.zeros((len(labels), len(anchor)), dtype=np.int64)
    offset = np.zeros((len(labels), len(anchor), 4), dtype=np.float32)
    for number, label in enumerate(labels):
        seen = augmentation.labels(number, label, size)
        matched = match_anchors(seen.box, anchor)
        some = matched >= 0
        category[number, some] = seen.category[matched[some]] + 1
        offset[number, some] = encode(seen.box[matched[some]], anchor[some])
    return category, offset


def _upload(pixels: Pixels, device: object) -> Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))).to(str(device))


def _normalise(images: Tensor) -> Tensor:
    """Centre pixels on zero, so that what lies outside an image becomes the middle grey."""
    import torch

    return ((images.float() - 128) / 64).contiguous(memory_format=torch.channels_last)


def _augment(images: Tensor, augmentation: Augmentation, light: Tensor) -> Tensor:
    """Transform images, and change their light (contrast, then brightness)."""
    import torch
    from torch.nn.functional import affine_grid, grid_sample

    affine = np.zeros((len(images), 2, 3), dtype=np.float32)
    affine[:, [0, 1], [0, 1]] = augmentation.scale
    affine[:, :, 2] = augmentation.shift
    shape = list(images.shape)
    grid = affine_grid(torch.from_numpy(affine).to(images.device), shape, align_corners=False)
    seen = grid_sample(images, grid, align_corners=False)
    contrast, brightness = light.float().to(images.device)
    lit: Tensor = seen * contrast + brightness - 1
    return lit.contiguous(memory_format=torch.channels_last)


# ---- The network and its loss -------------------------------------------------------------------


def make_network(n_categories: int, channels: int) -> ModuleDict:
    """Stages that halve the image five times; a lateral layer and a head for each of the last 3."""
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
    laterals = [nn.Conv2d(width, middle, 1) for width in widths[2:]]
    n_out = len(_SHAPES) * (n_categories + 1 + 4)
    heads = [nn.Sequential(*layer(middle, middle), nn.Conv2d(middle, n_out, 1)) for _ in laterals]
    parts = {"stages": stages, "laterals": laterals, "heads": heads}
    return nn.ModuleDict({name: nn.ModuleList(part) for name, part in parts.items()})


def _forward(network: ModuleDict, images: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of the categories (background first) and offsets for all anchors of each image."""
    import torch
    from torch.nn.functional import interpolate

    features = [images]
    for stage in network["stages"]:
        features.append(stage(features[-1]))
    outputs: list[Tensor] = []
    coarser = None
    levels = zip(features[3:], network["laterals"], network["heads"], strict=True)
    for feature, lateral, head in reversed(list(levels)):
        here = lateral(feature)
        if coarser is not None:
            here = here + interpolate(coarser, size=here.shape[2:])
        coarser = here
        output = head(here).permute(0, 2, 3, 1)  # rows, columns, then the shapes of a cell
        outputs.insert(0, output.reshape(len(images), -1, output.shape[3] // len(_SHAPES)))
    joined = torch.cat(outputs, dim=1)
    return joined[:, :, :-4], joined[:, :, -4:]


def _loss(logits: Tensor, offset: Tensor, category: Tensor, true_offset: Tensor) -> Tensor:
    """Cross-entropy of objects and hard negatives, and smooth L1 of the offsets."""
    from torch.nn.functional import cross_entropy, smooth_l1_loss

    entropy = cross_entropy(logits.float().transpose(1, 2), category, reduction="none")
    is_object = category > 0
    n_objects = is_object.sum(dim=1, keepdim=True)
    background = entropy.detach().masked_fill(is_object, -1.0)
    rank = background.argsort(dim=1, descending=True).argsort(dim=1)
    counted = is_object | (rank < _NEGATIVES * n_objects.clamp(min=1))
    away = smooth_l1_loss(offset.float(), true_offset, reduction="none").sum(dim=2)
    total = (entropy * counted).sum() + (away * is_object).sum()
    return total / n_objects.sum().clamp(min=1)

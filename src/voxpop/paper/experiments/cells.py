"""Table 3, the detector: blood cells boxed by an emulated crowd, found by what its labels train.

The paper trains SSD on VOC-07/12 for 120,000 steps; here are 292 pictures of blood (BCCD) to
train with and 72 to test, three kinds of cells, and a small detector that learns from nothing in
1,200 steps. The crowd is that of table 2: pictures dealt to three workers each, ten to a worker,
both corners of every box, variances 10 and 1000. A worker thus gives some 270 answers, from which
BI knows its class as the oracle does: their labels are the same, and what their detectors differ
by is the noise of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.tables import matrix, open_table
from voxpop.errors import DataError
from voxpop.models.model import Model
from voxpop.models.simulation import simulate
from voxpop.paper.experiments.boxes import Picture, detection_scores, labelled, tidy
from voxpop.paper.experiments.detector import Pixels, Recipe, train
from voxpop.paper.experiments.runner import FULL, Effort, Experiment, Row, Setting
from voxpop.paper.experiments.synthetic import paper_methods
from voxpop.paper.experiments.tables import BOX_COLUMNS, VOC_SUPPORT, deal_images, one_of

CELL_METHODS = ("average", "nbi", "bi", "strong-oracle")
"""The paper's; the truth is a fifth way of labelling."""
RECIPE = Recipe()
# Pictures are read at half their size: a platelet is still 20 pixels wide.
_SMALLER = 2


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Pictures to train with and to test with, and the boxes of both, in pixels as labelled.

    ``picture`` says for each object of the training pictures where it is.
    """

    names: list[str]
    test_names: list[str]
    kinds: dict[int, str]
    picture: Index
    box: Floats
    kind: Index
    test: list[Picture]
    size: tuple[int, int]

    def pictures(self, corners: Floats) -> list[Picture]:
        """Training labels picture by picture, for corners that somebody gave the objects."""
        box = tidy(corners, *self.size)
        places = [self.picture == number for number in range(len(self.names))]
        return [labelled(box[some], self.kind[some]) for some in places]


def read_cells(data: Path) -> Cells:
    """Read the table of boxes; objects without extent, of which there are two, are left out."""
    table = open_table(one_of(data / "bccd", "boxes.csv"))
    (image, names), (split, splits), (code, kinds) = (
        table.ids(name) for name in ("image", "split", "class")
    )
    box = matrix(table, BOX_COLUMNS)
    sizes = np.unique(matrix(table, ("width", "height")), axis=0)
    if len(sizes) != 1:
        raise DataError("bccd/boxes.csv: pictures must be of one size (width, height)")
    whole = (box[:, 2:] > box[:, :2]).all(axis=1)
    order = np.argsort(kinds.astype(str))
    kind = np.argsort(order)[code].astype(np.int64)
    is_test = whole & (splits[split] == "test")
    is_train = whole & ~is_test
    train_codes, picture = np.unique(image[is_train], return_inverse=True)
    test_codes = np.unique(image[is_test])
    return Cells(
        names=[str(names[code]) for code in train_codes],
        test_names=[str(names[code]) for code in test_codes],
        kinds={place: str(kinds[code]) for place, code in enumerate(order)},
        picture=picture.astype(np.int64),
        box=box[is_train],
        kind=kind[is_train],
        test=[
            labelled(box[some], kind[some])
            for some in (is_test & (image == code) for code in test_codes)
        ],
        size=(int(sizes[0, 0]), int(sizes[0, 1])),
    )


def read_pixels(data: Path, names: Sequence[str]) -> Pixels:
    """Read pictures at half their size."""
    from PIL import Image

    found = []
    for name in names:
        with Image.open(one_of(data / "bccd/BCCD/JPEGImages", f"{name}.jpg")) as image:
            found.append(np.asarray(image.convert("RGB").reduce(_SMALLER)))
    return np.stack(found)


def resized(pictures: Sequence[Picture], factor: float) -> list[Picture]:
    """The same objects in pictures of another size."""
    return [Picture(box=factor * p.box, kind=p.kind, score=p.score) for p in pictures]


def crowd_labels(cells: Cells, rng: np.random.Generator) -> dict[str, tuple[Floats, float]]:
    """Corners that each method makes of one draw of the crowd, and their mean squared error."""
    model = Model(support=VOC_SUPPORT, dimension=2)
    truth = cells.box.reshape(-1, 2)
    crowd = simulate(model, deal_images(cells.picture, rng), rng, truth=truth)
    methods = paper_methods(crowd, model)
    found = {}
    for name in CELL_METHODS:
        estimate = methods[name].fit(crowd.answers).estimate
        error = float(((estimate - truth) ** 2).sum(axis=1).mean())
        found[name] = (estimate.reshape(-1, 4), error)
    return found | {"truth": (cells.box, 0.0)}


def run_cells(setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:  # noqa: ARG001
    """Draw a crowd, and train and test a detector on the labels of each method, all alike."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    cells = read_cells(data)
    labels = crowd_labels(cells, rng)
    seed = int(rng.integers(2**31))
    pixels, test_pixels = (read_pixels(data, names) for names in (cells.names, cells.test_names))
    rows: list[Row] = []
    for method, (corners, error) in labels.items():
        pictures = resized(cells.pictures(corners), 1 / _SMALLER)
        trained = train(pixels, pictures, len(cells.kinds), seed, RECIPE, device)
        found = resized(trained.find(test_pixels), _SMALLER)
        row: Row = {"method": method, "label_mse": error}
        rows.append({**row, **detection_scores(found, cells.test, cells.kinds)})
    return rows


def _plan_cells(effort: Effort, data: Path) -> list[tuple[Setting, int]]:  # noqa: ARG001
    return [({"images": "bccd"}, effort.detectors)]


def why_not_now(effort: Effort) -> str:
    """Without a GPU it takes many hours: that is no quick run."""
    import torch

    if effort.name == FULL.name or torch.cuda.is_available():
        return ""
    return "it needs a GPU, or --full and many hours"


DETECTOR = Experiment(
    name="detector",
    title="a detector of blood cells boxed by an emulated crowd",
    plan=_plan_cells,
    run=run_cells,
    methods=(*CELL_METHODS, "truth", str(RECIPE)),
    data="bccd",
    packages=("torch", "PIL"),
    extra="detect",
    why_not_now=why_not_now,
)

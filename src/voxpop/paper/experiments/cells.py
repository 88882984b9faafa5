"""Table 3, the detector: it is trained on boxes of blood cells that an emulated crowd drew.

The paper trains SSD on VOC-07/12 for 120,000 steps; here are 292 images of blood (BCCD) to train
with and 72 to test, three categories of cells, and a small detector that is trained from scratch in
1,200 steps. The crowd is that of table 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.tables import matrix, open_table
from voxpop.errors import DataError
from voxpop.models.simulation import simulate
from voxpop.paper.demo import compare
from voxpop.paper.experiments.boxes import (
    ImageObjects,
    boxes_from_corners,
    detection_scores,
    labelled,
)
from voxpop.paper.experiments.crowds import (
    BOX_COLUMNS,
    assign_images,
    find_file,
    paper_methods,
    voc_model,
)
from voxpop.paper.experiments.detector import Pixels, Recipe, train
from voxpop.paper.experiments.runner import FULL, Effort, Experiment, Row, Setting

# mAP and Overlap of SSD; the error of its labels is in PAPER_TABLE2.
PAPER_TABLE3 = {
    **{"average": (71.80, 0.741), "nbi": (75.62, 0.767), "bi": (75.94, 0.772)},
    **{"strong-oracle": (76.05, 0.774), "truth": (77.79, 0.784)},
}
RECIPE = Recipe()
# Images are read at half their size: a platelet is still 20 pixels wide.
_SHRINK = 2


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Training and test images, and the boxes of both in pixels as labelled.

    ``image`` is the training image of each training object.
    """

    names: list[str]
    test_names: list[str]
    categories: dict[int, str]
    image: Index
    box: Floats
    category: Index
    test: list[ImageObjects]
    size: tuple[int, int]

    def labels(self, corners: Floats) -> list[ImageObjects]:
        """Training labels image by image, from estimated corners of the objects."""
        box = boxes_from_corners(corners, *self.size)
        places = [self.image == number for number in range(len(self.names))]
        return [labelled(box[some], self.category[some]) for some in places]


def read_cells(data: Path) -> Cells:
    """Read the table of boxes; objects without extent, of which there are two, are left out."""
    table = open_table(find_file(data / "bccd", "boxes.csv"))
    (image, names), (split, splits), (code, categories) = (
        table.ids(name) for name in ("image", "split", "class")
    )
    box = matrix(table, BOX_COLUMNS)
    sizes = np.unique(matrix(table, ("width", "height")), axis=0)
    if len(sizes) != 1:
        raise DataError("bccd/boxes.csv: pictures must be of one size (width, height)")
    whole = (box[:, 2:] > box[:, :2]).all(axis=1)
    order = np.argsort(categories.astype(str))
    category = np.argsort(order)[code].astype(np.int64)
    is_test = whole & (splits[split] == "test")
    is_train = whole & ~is_test
    train_codes, train_image = np.unique(image[is_train], return_inverse=True)
    test_codes = np.unique(image[is_test])
    places = [is_test & (image == code) for code in test_codes]
    return Cells(
        names=[str(names[code]) for code in train_codes],
        test_names=[str(names[code]) for code in test_codes],
        categories={place: str(categories[code]) for place, code in enumerate(order)},
        image=train_image.astype(np.int64),
        box=box[is_train],
        category=category[is_train],
        test=[labelled(box[some], category[some]) for some in places],
        size=(int(sizes[0, 0]), int(sizes[0, 1])),
    )


def read_pixels(data: Path, names: Sequence[str]) -> Pixels:
    """Read images at half their size."""
    from PIL import Image

    found = []
    for name in names:
        with Image.open(find_file(data / "bccd/BCCD/JPEGImages", f"{name}.jpg")) as image:
            found.append(np.asarray(image.convert("RGB").reduce(_SHRINK)))
    return np.stack(found)


def resized(images: Sequence[ImageObjects], factor: float) -> list[ImageObjects]:
    """The same objects in images of another size."""
    return [replace(objects, box=factor * objects.box) for objects in images]


def crowd_labels(cells: Cells, rng: np.random.Generator) -> dict[str, tuple[Floats, float]]:
    """Corners that each method makes of one draw of the crowd, and their mean squared error."""
    model = voc_model()
    assignment = assign_images(cells.image, rng)
    crowd = simulate(model, assignment, rng, truth=cells.box.reshape(-1, 2))
    runs = compare(crowd, paper_methods(crowd, model))
    labels = {run.label: (run.result.estimate.reshape(-1, 4), run.score.mse) for run in runs}
    return labels | {"truth": (cells.box, 0.0)}


def run_cells(_setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:
    """Draw a crowd, and train and test a detector on the labels of each method in the same way."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    cells = read_cells(data)
    labels = crowd_labels(cells, rng)
    seed = int(rng.integers(2**31))
    pixels, test_pixels = (read_pixels(data, names) for names in (cells.names, cells.test_names))
    rows: list[Row] = []
    for method, (corners, error) in labels.items():
        small = resized(cells.labels(corners), 1 / _SHRINK)
        trained = train(pixels, small, len(cells.categories), seed, RECIPE, device)
        found = resized(trained.detect(test_pixels), _SHRINK)
        row: Row = {"method": method, "label_mse": error}
        rows.append({**row, **detection_scores(found, cells.test, cells.categories)})
    return rows


def unavailable(effort: Effort) -> str:
    """Say why it cannot run: without a GPU it takes many hours, too long for a quick run."""
    import torch

    if effort.name == FULL.name or torch.cuda.is_available():
        return ""
    return "it needs a GPU, or --full and many hours"


DETECTOR = Experiment(
    name="detector",
    title="a detector of blood cells boxed by an emulated crowd",
    plan=lambda effort, _: [({"images": "bccd"}, effort.detectors)],
    run=run_cells,
    methods=(*PAPER_TABLE3, str(RECIPE)),
    data="bccd",
    packages=("torch", "PIL"),
    extra="detect",
    unavailable=unavailable,
)

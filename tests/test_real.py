"""Real crowds, where they lie beside the checkout: figures known from elsewhere come out."""

from __future__ import annotations

from pathlib import Path

import pytest

from voxpop import aggregate, score

DATA = Path(__file__).parent.parent.parent / "shared" / "data"

pytestmark = pytest.mark.skipif(
    not DATA.exists(), reason="the real data sets are not part of the project; ../shared is absent"
)


@pytest.mark.parametrize(
    ("name", "method", "rmse"),
    [
        ("n_emotion", "average", 17.835),
        ("n_emotion", "median", 21.264),
        ("n_emotion", "nbi", 18.969),  # the published LFC_N, which NBI is
        ("n_emotion", "catd", 18.870),  # a peer's, with its weights normalised per task
        ("n_emotion", "p910", 18.700),  # sureal's, like the next
        ("n_emotion", "p913", 17.843),
        ("moviereviews", "average", 0.0755),
        ("pedestrian_boxes", "average", 7.93),
        ("pedestrian_boxes", "median", 6.90),
        ("peer_grading", "average", 1.315),
        ("snow_wordsim", "average", 1.0936),
    ],
)
def test_baselines_reproduce_published_figures(name: str, method: str, rmse: float) -> None:
    folder = DATA / name
    result = aggregate(folder / "answers.csv.gz", method)
    assert score(result, folder / "truth.csv.gz").rmse == pytest.approx(rmse, rel=2e-3)

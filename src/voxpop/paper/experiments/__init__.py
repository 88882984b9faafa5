"""The paper, reproduced: figures, tables and claims from seeded instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from voxpop.data.output import make_folder, replacing
from voxpop.data.tables import write_table
from voxpop.paper.experiments.cells import DETECTOR
from voxpop.paper.experiments.claims import Verdict, count, judge
from voxpop.paper.experiments.crowds import EXAMPLE_RUN, FIGURES, TABLE1, TABLE2
from voxpop.paper.experiments.learning import LEARNING
from voxpop.paper.experiments.report import claims_sheet, draw_figures, markdown, sheets
from voxpop.paper.experiments.runner import (
    FULL,
    QUICK,
    Effort,
    Experiment,
    OnInstance,
    open_pool,
    run_experiment,
)

_ALL = [*FIGURES, EXAMPLE_RUN, TABLE1, TABLE2, *LEARNING, DETECTOR]
PARTS: dict[str, list[Experiment]] = {
    **{experiment.name: [experiment] for experiment in (*FIGURES, TABLE1, TABLE2)},
    "table3": [*LEARNING, DETECTOR],
    "claims": _ALL,
    "all": _ALL,
}
"""What can be asked for, and the experiments that it takes."""

_DATA_SETS = {
    "voc0712": "the boxes of PASCAL VOC 2007 and 2012 trainval as one table",
    "fgnet_truth": "the photos of FG-NET and their ages",
    "moviereviews": "the movie reviews of Rodrigues et al. (2017): words, crowd ratings, truth",
    "bccd": "the pictures and boxes of the BCCD data set of blood cells",
}


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Tables for people, claims with their verdicts, what was not run and why, files written."""

    sheets: dict[str, pd.DataFrame]
    verdicts: list[Verdict]
    notes: list[str]
    files: list[Path]


def reproduce(
    parts: Sequence[str],
    effort: Effort,
    folder: Path,
    data: Path,
    jobs: int = 1,
    on_instance: OnInstance | None = None,
) -> Reproduction:
    """Run what the parts of the paper need, and write tidy tables, figures and a summary.

    Instances that are already in the folder are not run again, so that an interrupted run resumes
    where it stopped. ``claims`` draws no figures.
    """
    make_folder(folder)
    asked = {experiment.name for part in parts for experiment in PARTS[part]}
    notes: list[str] = []
    files: list[Path] = []
    frames: dict[str, pd.DataFrame] = {}
    with open_pool(jobs) as pool:
        for experiment in (experiment for experiment in _ALL if experiment.name in asked):
            reason = _cannot_run(experiment, effort, data)
            jobs_of = experiment.jobs(effort, folder, data)
            # Instances run elsewhere and copied here need neither data nor a GPU to be shown.
            if reason and any(job.stored() is None for job in jobs_of):
                notes.append(reason)
                continue
            rows = run_experiment(experiment, effort, folder, data, pool, on_instance)
            frames[experiment.name] = pd.DataFrame(rows)
            files.append(folder / f"{experiment.name}.csv")
            write_table(dict(frames[experiment.name].items()), files[-1])  # type: ignore[arg-type]
    if list(parts) != ["claims"] and any(name.startswith("fig") for name in frames):
        if find_spec("matplotlib") is None:
            notes.append("no figures: matplotlib is not installed; pip install 'voxpop[plots]'")
        else:
            files += draw_figures(frames, folder)
    verdicts = judge(frames, asked)
    tables = sheets(frames)
    files.append(folder / "summary.md")
    with replacing(files[-1]) as temporary:
        summary = [f"voxpop reproduce, {effort.name}: {len(frames)} experiments\n"]
        summary += [f"- {note}\n" for note in notes]
        shown = {**tables, "Claims of the paper": claims_sheet(verdicts)}
        summary += [markdown(title, table) for title, table in shown.items()]
        temporary.write_text("\n".join([*summary, f"{count(verdicts)}\n"]))
    return Reproduction(sheets=tables, verdicts=verdicts, notes=notes, files=files)


def _cannot_run(experiment: Experiment, effort: Effort, data: Path) -> str:
    """Say why an experiment cannot be run here, and what to do; empty if it can."""
    not_run = f"{experiment.name} ({experiment.title}) not run: "
    absent = [name for name in experiment.packages if find_spec(name) is None]
    if absent:
        names = " and ".join(absent)
        return f"{not_run}{names} not installed; pip install 'voxpop[{experiment.extra}]'"
    if experiment.data and not (data / experiment.data).is_dir():
        return (
            f"{not_run}{data / experiment.data} is absent; "
            f"it should hold {_DATA_SETS[experiment.data]}; layout and sources are on the page "
            '"The paper, reproduced" of the docs; name the folder above it with --data'
        )
    reason = experiment.unavailable(effort)
    return not_run + reason if reason else ""


__all__ = ["FULL", "PARTS", "QUICK", "Effort", "Reproduction", "count", "reproduce"]

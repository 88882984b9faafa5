"""Before and after a change of the code: the same crowds, every estimate against the earlier one.

    python -m benchmarks.before_after save before.npz [--data ../shared/data]     # the old commit
    python -m benchmarks.before_after save after.npz  [--data ../shared/data]     # the new one
    python -m benchmarks.before_after compare before.npz after.npz

Only public names are used, so that the script runs unchanged on an older commit. Differences are in
units of the estimate's own standard deviation; `=` stands for equal to the last bit.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import voxpop as vp

LEVELS = (10.0, 100.0, 1000.0)
EIGHT = tuple(np.geomspace(0.1, 300.0, 8).tolist())
SETS = {
    "n_emotion": "", "moviereviews": "", "peer_grading": "", "snow_wordsim": "",
    "pedestrian_boxes": "single_",
}  # fmt: skip
NOISES = {
    "tails": vp.Noise(tails="learn"),
    "bias": vp.Noise(bias=True),
    "difficulty": vp.Noise(difficulty=True),
    "truths": vp.Noise(truths="learn"),
    "all": vp.Noise(tails="learn", bias=True, difficulty=True, truths="learn"),
}


def draw(
    seed: int,
    n: int,
    per_task: int,
    per_worker: int,
    levels: tuple[float, ...] = LEVELS,
    d: int = 1,
    gold: int = 0,
) -> vp.Answers:
    """A crowd of the paper's model; the truths of the first ``gold`` tasks are known."""
    rng = np.random.default_rng(seed)
    model = vp.Model(support=levels, dimension=d)
    crowd = vp.simulate(model, vp.assign_regular(n, per_task, per_worker, rng), rng)
    if not gold:
        return crowd.answers
    known = np.full((n, d), np.nan)
    known[:gold] = crowd.truth[:gold]
    a = crowd.answers
    return vp.Answers(
        task_ids=a.task_ids, worker_ids=a.worker_ids, task=a.task, worker=a.worker,
        value=a.value, value_names=a.value_names, gold=known,
    )  # fmt: skip


def drawn_crowds() -> dict[str, vp.Answers]:
    """Crowds of the paper's figures, and ones that are hard on the engine."""
    wide = (1e-4, 1.0, 1e4)
    ragged = draw(6, 120, 6, 12)
    keep = np.random.default_rng(6).random(ragged.n_edges) < 0.7
    keep[ragged.task_ptr[:-1]] = True
    far = draw(9, 100, 5, 10)
    return {
        "figure 1, r = 5, d = 2": draw(0, 200, 5, 5, d=2),
        "figure 1, r = 20, d = 2": draw(1, 200, 5, 20, d=2),
        "figure 1, l = 10, d = 2": draw(2, 200, 10, 10, d=2),
        "wide ratios": draw(3, 120, 5, 10, wide),
        "gold": draw(4, 150, 5, 10, gold=40),
        "gold, d = 2": draw(4, 150, 5, 10, d=2, gold=40),
        "vectors, d = 4": draw(5, 100, 4, 8, d=4),
        "ragged": vp.Answers.from_arrays(
            ragged.task[keep], ragged.worker[keep], ragged.value[keep]
        ),
        "large degree": draw(7, 60, 100, 30, EIGHT),
        "sparse, r = 2": draw(8, 200, 3, 2),
        "offset 1e7": vp.Answers.from_arrays(far.task, far.worker, far.value + 1e7),
    }


def real_crowds(data: Path | None) -> dict[str, vp.Answers]:
    """The real sets, where they are at hand."""
    return {
        name: vp.read_answers(str(data / name / f"{prefix}answers.csv.gz"))
        for name, prefix in SETS.items()
        if data is not None
    }


def methods(name: str, answers: vp.Answers) -> Iterator[tuple[str, vp.Estimator]]:
    """What is fitted to a crowd."""
    levels = (1e-4, 1.0, 1e4) if name == "wide ratios" else LEVELS
    levels = EIGHT if name == "large degree" else levels
    small = len(levels) ** int(answers.task_degree.max()) <= 2**16
    if "real" not in name:
        for inference in ("auto", "enumerate", "active", "integrate"):
            if small or inference in ("auto", "integrate"):
                yield f"BI, levels given, {inference}", vp.BI(support=levels, inference=inference)
        yield "BI, prior", vp.BI(support=levels, prior_mean=50.0, prior_variance=900.0)
        yield "BI, portable", vp.BI(support=levels, backend="portable")
    yield "BI, levels learned", vp.BI()
    yield "BI, levels of NBI", vp.BI(support="nbi")
    yield "BI, common level", vp.BI(support="common")
    for label, noise in NOISES.items():
        yield f"BI, {label}", vp.BI(noise=noise)
    for method, kind in vp.ESTIMATORS.items():
        if method in ("bi", "pg1", "exact", "strong-oracle", "weak-oracle", "gold-first"):
            continue
        if method == "quantise" and answers.dimension > 1:
            continue
        yield method, kind()


def save(out: Path, data: Path | None) -> None:
    """Fit everything, and keep what came out."""
    found: dict[str, np.ndarray] = {}
    facts: dict[str, dict[str, object]] = {}
    crowds = drawn_crowds() | {f"{k} (real)": v for k, v in real_crowds(data).items()}
    for crowd, answers in crowds.items():
        for method, estimator in methods(crowd, answers):
            key = f"{crowd} | {method}"
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    result = estimator.fit(answers)
                except vp.VoxpopError as error:
                    facts[key] = {"error": str(error)}
                    continue
            facts[key] = {
                "seconds": time.process_time() - start,
                "chosen": result.settings.get("chosen"),
                "sweeps": result.trace.n_sweeps,
            }
            for part in ("estimate", "variance", "quantile", "worker_variance"):
                found[f"{key} | {part}"] = getattr(result, part)
        print(crowd, flush=True)
    np.savez_compressed(out, facts=json.dumps(facts), **found)  # type: ignore[arg-type]


def compare(before: Path, after: Path) -> None:
    """Print a line per crowd and method."""
    old, new = np.load(before), np.load(after)
    facts, facts_now = json.loads(str(old["facts"])), json.loads(str(new["facts"]))
    print("| crowd and method | estimates, sd | variances, share | workers, share | time |")
    print("|---|---|---|---|---|")
    for key, fact in facts.items():
        now = facts_now.get(key)
        if now is None or "error" in fact or "error" in now:
            same = now is not None and ("error" in fact) == ("error" in now)
            print(f"| {key} | {'refused, as before' if same else f'{fact} v {now}'} | | | |")
            continue
        a, b = old[f"{key} | estimate"], new[f"{key} | estimate"]
        sd = np.sqrt(np.maximum(old[f"{key} | variance"], 1e-300))
        shown = [_worst(np.abs(a - b) / np.where(sd > 1e-140, sd, 1.0))]
        for part in ("variance", "worker_variance"):
            x, y = old[f"{key} | {part}"], new[f"{key} | {part}"]
            shown.append(_worst(np.abs(x - y) / np.maximum(np.abs(x), 1e-300)))
        choice = (
            "" if fact["chosen"] == now["chosen"] else f" ({fact['chosen']} -> {now['chosen']})"
        )
        ratio = now["seconds"] / max(fact["seconds"], 1e-9)
        print(f"| {key}{choice} | {' | '.join(shown)} | {ratio:.2f} |")


def _worst(difference: np.ndarray) -> str:
    worst = float(np.nanmax(difference)) if difference.size else 0.0
    return "=" if worst == 0.0 else f"{worst:.1e}"


def main() -> None:
    """Save or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=("save", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    if given.do == "save":
        save(given.files[0], given.data)
    else:
        compare(*given.files)


if __name__ == "__main__":
    main()

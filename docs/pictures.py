"""Make the pictures of the docs from simulated crowds: python docs/pictures.py

Those of the gallery come from the code that docs/plots.md shows. The screenshots of the report need
playwright and the system's Chromium.
"""

from __future__ import annotations

import re
import shutil
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from PIL import Image

import voxpop as vp

FIGURES = Path(__file__).parent / "figures"
NAMES = (
    "ada ben cleo dora emil finn gia hugo iris jon kira liam mia noah olga paul quin rosa sam tess"
)


def ages() -> vp.Answers:
    """240 portraits, six guesses each of forty people: one always says 40, one does not look.

    Of four portraits half of the people guess the age of somebody else in the picture; three have
    one or two answers.
    """
    rng = np.random.default_rng(4)
    first = NAMES.split()
    worker = [
        *first,
        *(f"{name}.{letter}" for name, letter in zip(first, "abcdefghij" * 2, strict=True)),
    ]
    sd, bias = rng.choice([2, 5, 12], 40, p=[0.35, 0.45, 0.2]), rng.normal(0, 2, 40)
    rows = []
    for i, truth in enumerate(rng.uniform(18, 75, 240)):
        for u in rng.choice(40, 6, replace=False):
            said = truth + bias[u] + sd[u] * rng.normal()
            if i % 60 == 17 and len(rows) % 2:
                said = abs(said - 30)
            said = 40 if u == 3 else rng.uniform(18, 75) if u == 11 else said
            rows.append((f"portrait_{i:03d}.jpg", worker[u], round(float(np.clip(said, 1, 99)))))
        if i % 80 == 5:
            del rows[-5 + i // 160 :]
    return vp.Answers.from_arrays(*zip(*rows, strict=True), value_names=("age",))


def boxes() -> vp.Answers:
    """60 boxes drawn by five people each, of whom some are careless."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(60):
        corner, size = rng.uniform(0, 400, 2), rng.uniform(60, 150, 2)
        box = np.concatenate([corner, corner + size])
        for u in rng.choice(15, 5, replace=False):
            value = box + (1.5, 2, 3, 8, 20)[u % 5] * rng.normal(size=4)
            rows.append((f"street_{i:03d}.jpg", NAMES.split()[u], value.round(1)))
    names = ("xmin", "ymin", "xmax", "ymax")
    return vp.Answers.from_arrays(*zip(*rows, strict=True), value_names=names)


def shrink(path: Path) -> None:
    """Reduce a picture of lines and letters to a few colours."""
    with Image.open(path) as image:
        # Maximum coverage keeps rare colours: a single orange dot must stay orange.
        few = image.convert("RGB").quantize(
            128, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        few.save(path, optimize=True)


def write_crowds(folder: Path) -> None:
    """Write the answers that the gallery reads."""
    for name, answers in (("ages", ages()), ("boxes", boxes())):
        columns = {
            "task": answers.task_ids[answers.task],
            "worker": answers.worker_ids[answers.worker],
        }
        columns |= dict(zip(answers.value_names, answers.value.T, strict=True))
        pd.DataFrame(columns).to_csv(folder / f"{name}.csv", index=False)


def gallery(folder: Path) -> None:
    """Run the code of the gallery's page, as a reader would, and keep the pictures it saves."""
    page = (FIGURES.parent / "plots.md").read_text()
    write_crowds(folder)
    with chdir(folder):
        exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {})
    for picture in folder.glob("*.png"):
        shutil.copy(picture, FIGURES)
        shrink(FIGURES / picture.name)


def screenshots(path: Path) -> None:
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])

        def opened(width: int, height: int, scheme: str = "light"):
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page = context.new_page()
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready]")
            return page

        def shoot(page, name: str) -> None:
            page.screenshot(path=FIGURES / name)
            shrink(FIGURES / name)

        shoot(opened(1100, 1000), "report.png")
        page = opened(900, 680)
        page.locator("#look tbody tr", has_text="two camps").first.click()
        shoot(page, "report_task.png")
        page = opened(900, 680, "dark")
        page.locator("#talk a").first.click()
        page.wait_for_selector("dialog[open]")
        shoot(page, "report_worker.png")
        shoot(opened(380, 760), "report_phone.png")
        browser.close()


def landing(answers: vp.Answers, result: vp.Result) -> None:
    """Draw the picture of the first page: tasks on which the mean and the estimate differ most."""
    mean = vp.Average().fit(answers).estimate
    apart = abs(result.estimate - mean)[:, 0]
    tasks = [result.task_ids[i] for i in apart.argsort()[::-1][:9]]
    path = FIGURES / "landing.png"
    vp.plot_tasks(answers, result, tasks).figure.savefig(path, dpi=120)
    shrink(path)


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        gallery(folder)
        answers = ages()
        result = vp.aggregate(answers)
        landing(answers, result)
        screenshots(vp.write_report(answers, result, folder / "r.html", title="ages.csv"))


if __name__ == "__main__":
    main()

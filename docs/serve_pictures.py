"""Make the pictures of the live campaign for the docs: python docs/serve_pictures.py

Runs ``voxpop serve`` on a new database, lets a simulated crowd answer where the service asks, and
looks at the pages in the system's Chromium. Needs the extra serve and playwright.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np
from pictures import FIGURES, NAMES, shrink

import voxpop as vp

STREET = """<svg xmlns="http://www.w3.org/2000/svg" width="640" height="420">
<rect width="640" height="420" fill="#b9d8f3"/>
<circle cx="540" cy="70" r="30" fill="#f7d774"/>
<g fill="#9aa4b1"><rect x="30" y="110" width="110" height="180"/>
<rect x="470" y="130" width="130" height="160"/></g>
<rect x="150" y="160" width="90" height="130" fill="#b5bcc6"/>
<g fill="#dfe9f3"><rect x="48" y="130" width="22" height="28"/>
<rect x="92" y="130" width="22" height="28"/>
<rect x="48" y="180" width="22" height="28"/><rect x="92" y="180" width="22" height="28"/>
<rect x="490" y="150" width="24" height="30"/><rect x="540" y="150" width="24" height="30"/>
<rect x="490" y="205" width="24" height="30"/><rect x="540" y="205" width="24" height="30"/></g>
<rect y="290" width="640" height="130" fill="#5d646d"/>
<path d="M0 355h640" stroke="#e8d96a" stroke-width="6" stroke-dasharray="40 26"/>
<g transform="translate(255 235)"><path d="M10 55q4-26 40-28l22-24q3-4 10-4h58q8 0 12 6l18 22q40
2 42 30v14h-202z" fill="#c93a2e"/><path d="M78 26l16-18h22v18zM122 8h20l14 18h-34z" fill="#cfe4f5"/>
<circle cx="52" cy="70" r="19" fill="#22262b"/><circle cx="168" cy="70" r="19" fill="#22262b"/></g>
</svg>"""


@contextmanager
def service(folder: Path) -> Iterator[str]:
    """Run the service, and give its owner link."""
    command = [sys.executable, "-m", "voxpop", "serve", str(folder / "ages.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if b"/login?token=" in line:
                    yield line.decode().strip()
                    break
        finally:
            process.terminate()


def send(link: str, method: str, path: str, body: object) -> Any:
    """Send a request as the owner."""
    address, token = link.split("/login?token=")
    request = Request(f"{address}/api/v1{path}", json.dumps(body).encode(), method=method)
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Content-Type", "application/json")
    with urlopen(request, timeout=60) as reply:
        return json.load(reply)


def campaign(link: str, body: dict[str, Any], tasks: list[dict[str, Any]]) -> str:
    """Make an open campaign."""
    slug = str(send(link, "POST", "/campaigns", body)["slug"])
    send(link, "POST", f"/campaigns/{slug}/tasks", tasks)
    send(link, "PATCH", f"/campaigns/{slug}", {"state": "open"})
    return slug


def ages(link: str) -> str:
    """Ask twenty people for the ages of 120 portraits, where it helps most; one always says 40."""
    body = {
        "title": "Ages of portraits",
        "question": {"kind": "number", "text": "How old?", "unit": "years", "min": 0, "max": 120},
        "rules": {"price": 10, "half_width": 6, "practice": 0}, "budget": 10_000,
    }  # fmt: skip
    names = [f"portrait_{i:03d}.jpg" for i in range(120)]
    shown = [{"name": name, "content": {"text": f"Portrait {name}"}} for name in names]
    slug = campaign(link, body, shown)
    rng = np.random.default_rng(4)
    truth = dict(zip(names, rng.uniform(18, 75, 120), strict=True))
    sd = rng.choice([2, 5, 12], 20, p=[0.35, 0.45, 0.2])
    client = vp.Client(link, campaign=slug)
    given: set[tuple[str, str]] = set()
    for _ in range(40):
        rows = []
        for name in map(str, client.next(25).task):
            free = [u for u in range(20) if (name, NAMES.split()[u]) not in given]
            u = int(rng.choice(free))
            said = 40 if u == 3 else np.clip(truth[name] + sd[u] * rng.normal(), 1, 99)
            given.add((name, NAMES.split()[u]))
            rows.append((name, NAMES.split()[u], [float(round(said))]))
        if rows:
            client.add_many(*zip(*rows, strict=True))
        until(client, len(given))  # as in life, where answers come more slowly than boards
        if client.summary()["n_done"] > 0.55 * len(names):
            break
    return slug


def until(client: vp.Client, n: int) -> None:
    """Wait until inference has seen all answers, and learned from most of them."""
    for _ in range(120):
        time.sleep(0.5)
        told = client.summary()
        learned = told.get("learned_answers", 0) >= 0.75 * n or n < 240
        if learned and told["inference_seq"] >= told["seq"]:
            return


def street(link: str) -> str:
    """Ask for a box in a picture."""
    body = {
        "title": "Cars in the street",
        "question": {"kind": "box", "text": "Draw a box around the red car."},
        "instructions": "One box, as tight as you can.", "rules": {"practice": 0, "price": 8},
    }  # fmt: skip
    picture = f"data:image/svg+xml,{quote(STREET)}"
    return campaign(link, body, [{"name": "street 1", "content": {"image": picture}}])


def screenshots(link: str) -> None:
    """Look at both pages."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    invite = send(link, "POST", f"/campaigns/{street(link)}/links", {"kind": "invite"})["url"]
    slug = ages(link)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 680})
        page.goto(invite)
        page.get_by_role("button", name="Start").click()
        page.wait_for_selector(".stage.ready")
        box = page.locator(".view img").bounding_box()
        assert box is not None
        unit = box["width"] / 640
        page.mouse.move(box["x"] + 262 * unit, box["y"] + 232 * unit)
        page.mouse.down()
        page.mouse.move(box["x"] + 466 * unit, box["y"] + 325 * unit, steps=4)
        page.mouse.up()
        page.screenshot(path=FIGURES / "serve_worker.png")
        page = browser.new_page(viewport={"width": 1100, "height": 1250})
        page.goto(link)
        page.wait_for_url("**/")
        page.goto(f"{link.partition('/login')[0]}/owner/{slug}")
        page.wait_for_selector("#task-list tbody tr")
        page.screenshot(path=FIGURES / "serve_dashboard.png")
        browser.close()
    for name in ("serve_worker.png", "serve_dashboard.png"):
        shrink(FIGURES / name)


def main() -> None:
    with TemporaryDirectory() as folder, service(Path(folder)) as link:
        screenshots(link)


if __name__ == "__main__":
    main()

"""Small crowds that many tests share, and hypothesis's settings."""

from __future__ import annotations

import importlib.util
import io
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from voxpop import Answers, Model, Simulation, assign_regular, simulate
from voxpop.inference.engine import native_is_installed

if TYPE_CHECKING:
    from tests.postgres import PostgreSQL

# Derandomised: a test that passes here passes there. No deadline: machines differ.
settings.register_profile(
    "voxpop",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("voxpop")


BACKENDS = ["portable", *(["native"] if native_is_installed() else [])]


def skip_without(program: str, reason: str) -> NoReturn:
    """Skip a test that needs a program; fail it where ``VOXPOP_REQUIRE`` names that program.

    ``.ci/run`` sets the variable, so that a browser or a database that is there is also used.
    """
    if program in os.environ.get("VOXPOP_REQUIRE", "").split(","):
        pytest.fail(f"VOXPOP_REQUIRE names {program}, but: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A PostgreSQL server of our own, with the driver that the service takes."""
    from tests.postgres import PostgreSQL

    if importlib.util.find_spec("psycopg") is None:
        skip_without("postgresql", "psycopg is not installed")
    server = PostgreSQL()
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def serve_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database for the service: a file, then a database of a server."""
    if request.param == "sqlite":
        return str(tmp_path / "campaign.db")
    server = request.getfixturevalue("postgresql")
    name = f"serve_{secrets.token_hex(6)}"
    return str(server.make_database(name))


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What the service logs, every request included."""
    from voxpop.service.logs import NAME, start_logging

    stream = io.StringIO()
    handler = start_logging(stream, level=logging.INFO)
    yield stream
    for name in (NAME, "uvicorn"):
        logging.getLogger(name).removeHandler(handler)
        logging.getLogger(name).setLevel(logging.NOTSET)
        logging.getLogger(name).propagate = True


@pytest.fixture(scope="session")
def crowd() -> Simulation:
    """60 tasks in the plane, 4 answers each, 8 per worker."""
    return make_crowd(0)


def moved_and_renamed(answers: Answers) -> Answers:
    """The answers in other units, with other names of workers, in another order of rows."""
    order = np.random.default_rng(0).permutation(answers.n_edges)
    names = np.array([f"w{u}" for u in answers.worker_ids])
    return Answers.from_arrays(
        answers.task_ids[answers.task][order],
        names[answers.worker][order],
        (-3.0 * answers.value + 1e4)[order],
    )


def make_crowd(seed: int, dimension: int = 2, n_tasks: int = 60) -> Simulation:
    rng = np.random.default_rng(seed)
    model = Model(support=(10, 100, 1000), dimension=dimension)
    return simulate(model, assign_regular(n_tasks, 4, 8, rng), rng)


def random_tree(rng: np.random.Generator, n_workers: int, dimension: int, spread: float) -> Answers:
    """Answers on a random tree: every new task or worker hangs on one that is there already."""
    edges = [(0, 0)]
    n_tasks = 1
    for u in range(1, n_workers):
        if rng.random() < 0.5:
            edges.append((n_tasks, int(rng.integers(u))))
            n_tasks += 1
            edges.append((n_tasks - 1, u))
        else:
            edges.append((int(rng.integers(n_tasks)), u))
    if rng.random() < 0.5:  # a task with one answer
        edges.append((n_tasks, int(rng.integers(n_workers))))
    task, worker = np.array(edges).T
    value = rng.normal(0, spread, (len(edges), dimension)) + rng.normal(0, 50, dimension)
    return Answers.from_arrays(task, worker, value)

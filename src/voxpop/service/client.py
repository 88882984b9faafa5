"""Client: a campaign that a service runs, with the methods of :class:`voxpop.Campaign`.

The standard library alone: a client need not install the service.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import numpy as np
from numpy.typing import ArrayLike

from voxpop.collect.campaign.next_batch import Batch
from voxpop.data.answers import Answers
from voxpop.data.output import replacing
from voxpop.data.tables import frame
from voxpop.errors import ConfigError, DataError, require
from voxpop.estimators.aggregate import aggregate
from voxpop.estimators.auto.auto import Auto
from voxpop.estimators.base import Estimator
from voxpop.results.result import Result
from voxpop.service.questions import Question
from voxpop.service.wire import Wire

_AT_ONCE = 1000


class Client:
    """A campaign on a running ``voxpop serve``.

    A notebook can switch between a :class:`voxpop.Campaign` and this: ``add``, ``next`` and
    ``result`` do the same, but the answers are in the service's database, beside those that
    people give in their browsers.

    Parameters
    ----------
    url
        The address of the service; or the owner link, which holds the token too.
    token
        The owner's token.
    campaign
        The campaign's slug; not needed where there is one campaign only.
    timeout
        Seconds to wait for an answer.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        campaign: str | None = None,
        *,
        timeout: float = 60.0,
    ) -> None:
        parts = urlsplit(url)
        require(
            parts.scheme in ("http", "https") and bool(parts.netloc),
            f"expected an address like http://127.0.0.1:8000, got {url!r}",
        )
        found = parse_qs(parts.query).get("token", [None])[0]
        token = token or found
        if not token:
            raise ConfigError("the owner's token is missing; it is in the owner link")
        path = parts.path.removesuffix("/login").rstrip("/")
        self._wire = Wire(f"{parts.scheme}://{parts.netloc}{path}", token, timeout)
        self._slug = campaign

    @property
    def url(self) -> str:
        """The address of the service."""
        return self._wire.url

    def __repr__(self) -> str:
        return f"Client({self.url!r}, campaign={self._slug!r})"

    @property
    def campaign(self) -> str:
        """The campaign's slug."""
        if self._slug is None:
            slugs = [row["slug"] for row in self._wire.rows("campaigns")]
            if len(slugs) != 1:
                listed = ", ".join(slugs[:10]) or "none yet"
                raise ConfigError(f"name the campaign with campaign=; there are {listed}")
            self._slug = slugs[0]
        return self._slug

    def create(
        self,
        title: str,
        question: Mapping[str, Any],
        *,
        instructions: str = "",
        rules: Mapping[str, Any] | None = None,
        budget: int | None = None,
    ) -> Client:
        """Make a campaign and return a client for it; budget and prices are in cents.

        ``question`` is like ``{"kind": "number", "text": "How old is it?", "unit": "years"}``.
        """
        body = {"title": title, "question": dict(question), "instructions": instructions}
        body |= {"rules": dict(rules or {}), "budget": budget}  # type: ignore[dict-item]
        made = self._wire.send("POST", "campaigns", body)
        return Client(self.url, self._wire.token, made["slug"], timeout=self._wire.timeout)

    # Answers in

    def add(self, task: object, worker: object, value: ArrayLike) -> None:
        """Add one answer. Another value of the same worker replaces the first."""
        self.add_many([task], [worker], np.reshape(np.asarray(value, dtype=np.float64), (1, -1)))

    def add_many(self, task: Sequence[Any], worker: Sequence[Any], value: ArrayLike) -> int:
        """Add answers from three parallel columns; return how many the service took.

        Answers that cannot be taken (an unknown task, a value out of range) are named in the
        error; the others are in the database.
        """
        values = np.asarray(value, dtype=np.float64).reshape(len(task), -1)
        require(len(task) == len(worker), "task and worker must be equally long")
        rows = [
            {"task": str(t), "worker": str(w), "value": v}
            for t, w, v in zip(task, worker, values.tolist(), strict=True)
        ]
        taken, refused = 0, []
        for start, part in _parts(rows):
            reply = self._wire.send("POST", self._path("answers"), part)
            taken += reply["taken"]
            refused += [(start + one["row"], one["detail"]) for one in reply["refused"]]
        if refused:
            row, detail = refused[0]
            raise DataError(
                f"answer {row + 1} of {len(rows)} (task {rows[row]['task']!r}): {detail}; "
                f"{len(refused)} were refused, {taken} taken"
            )
        return taken

    def add_tasks(self, tasks: Iterable[Any]) -> int:
        """Add tasks: names, or mappings with ``name``, ``content``, ``kind`` and ``truth``."""
        rows: list[dict[str, Any]] = [
            dict(t) if isinstance(t, Mapping) else {"name": str(t)} for t in tasks
        ]
        for row in rows:
            row.setdefault("content", {"text": str(row.get("name", ""))})
        n = 0
        for _, part in _parts(rows):
            # A request that is sent again after a lost connection adds nothing twice.
            key = {"Idempotency-Key": uuid.uuid4().hex}
            n += self._wire.send("POST", self._path("tasks"), part, key)["n"]
        return n

    def add_gold(self, gold: Mapping[Any, ArrayLike]) -> None:
        """Set the truth of some tasks; their answers then only inform about the workers."""
        truths = {
            str(name): np.reshape(np.asarray(value, dtype=np.float64), -1).tolist()
            for name, value in gold.items()
        }
        for _, part in _parts(list(truths.items())):
            self._wire.send("POST", self._path("gold"), {"gold": dict(part)})

    def request(self, method: str, what: str = "", body: object = None) -> Any:
        """Ask the HTTP interface for anything else about this campaign, and return its reply.

        For all that has no method here, as ``/api/v1/openapi.json`` of the service describes it:
        ``request("PATCH", body={"state": "paused"})``, ``request("DELETE", "workers/7")``.
        """
        path = self._path(what) if what else f"campaigns/{quote(self.campaign)}"
        return self._wire.send(method, path, body)

    # Current knowledge

    def next(self, k: int = 1) -> Batch:
        """Return the k tasks that one more answer, by anyone, helps most.

        Best first, as the service hands tasks out; those with the fewest answers while it knows
        nothing of the noise.
        """
        rows = self._wire.send("GET", self._path("next", k=k))["rows"]
        told = self.summary()
        n = len(rows)
        unknown = np.full(n, np.nan)
        rmse = _number(told.get("expected_rmse"))
        return Batch(
            task=np.array([row["task"] for row in rows], dtype=object),
            worker=np.full(n, None, dtype=object),
            gain=np.array([_number(row["gain"]) for row in rows], dtype=np.float64),
            sd=unknown,
            sd_after=unknown,
            price=np.full(n, float(told["price"])),
            reason=["largest gain" if row["gain"] is not None else "" for row in rows],
            stop="" if n else str(told.get("stop") or "no task is open"),
            n_tasks=told["n_tasks"],
            n_done=told["n_done"],
            n_unanswered=told["n_unanswered"],
            rmse=rmse,
            rmse_after=_after(rmse, told.get("next") or {}, n),
        )

    def answers(self) -> Answers:
        """Download the answers that count, with the truths of gold, for any estimator."""
        rows = [
            row
            for row in self._wire.rows(self._path("answers"))
            if row["counts"] and row["kind"] != "practice"
        ]
        if not rows:
            raise DataError(f"campaign {self.campaign!r} has no answers yet")
        value_names = self._question().value_names
        truths = {
            row["name"]: row["truth"]
            for row in self._wire.rows(self._path("tasks"))
            if row["kind"] == "gold"
        }
        tasks = list(dict.fromkeys(row["task"] for row in rows))
        unknown = [np.nan] * len(value_names)
        return Answers.from_arrays(
            [row["task"] for row in rows],
            [row["worker"] for row in rows],
            [row["value"] for row in rows],
            value_names=value_names,
            gold=[truths.get(task, unknown) for task in tasks] if truths else None,
        )

    def result(self, method: str | Estimator = "auto") -> Result:
        """Fit all answers that are in the database now, here: as ``vp.aggregate`` of them.

        The default keeps to the range of the question, as the estimates of the service do.
        """
        if method == "auto":
            method = Auto(bounds=self._question().bounds())
        return aggregate(self.answers(), method)

    def _question(self) -> Question:
        return Question.parse(self.request("GET")["question"])

    def summary(self) -> dict[str, Any]:
        """Return the progress, the expected error, and the money."""
        found: dict[str, Any] = self._wire.send("GET", self._path("summary"))
        return found

    def tasks(self) -> Any:
        """Return all tasks as a data frame."""
        return _table(list(self._wire.rows(self._path("tasks"))))

    def estimates(self) -> Any:
        """Return the estimates that the service published last, as a data frame."""
        return _table(list(self._wire.rows(self._path("estimates", order="name"))))

    def link(self, kind: str = "invite") -> str:
        """Make a link, shown once: ``invite`` lets workers in.

        Also ``prolific`` and ``mturk`` for workers whom these send, ``label_studio`` for its ML
        backend and webhook, ``owner`` for another owner of this campaign.
        """
        return str(self._wire.send("POST", self._path("links"), {"kind": kind})["url"])

    def export(self, what: str, path: str | Path) -> Path:
        """Write a table as CSV: ``answers``, ``estimates``, ``credits`` or ``payments``."""
        content = self._wire.read("GET", self._path("export", what=what))
        with replacing(Path(path)) as partial:
            partial.write_bytes(content)
        return Path(path)

    def _path(self, what: str, /, **query: object) -> str:
        asked = f"?{urlencode(query)}" if query else ""
        return f"campaigns/{quote(self.campaign)}/{what}{asked}"


def _parts(rows: Sequence[Any]) -> Iterator[tuple[int, Sequence[Any]]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield start, rows[start : start + _AT_ONCE]


def _after(rmse: float, forecast: Mapping[str, Any], n: int) -> float:
    """The expected RMSE after n answers: a part of the way to the service's forecast."""
    after = _number(forecast.get("rmse_after"))
    part = min(n / max(1, forecast.get("n_answers", 1)), 1.0)
    return float(np.sqrt(rmse**2 - part * (rmse**2 - after**2)))


def _number(one: float | None) -> float:
    return np.nan if one is None else float(one)


def _table(rows: list[dict[str, Any]]) -> Any:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return frame({name: _column([row.get(name) for row in rows]) for name in names}, "pandas")


def _column(items: list[Any]) -> Any:
    column = np.empty(len(items), dtype=object)
    column[:] = items
    return column

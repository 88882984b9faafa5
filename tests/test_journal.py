"""A campaign in a file: whatever cuts it off, every answer that was acknowledged is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import make_crowd
from voxpop import Campaign, ConfigError, DataError, DataWarning, Model
from voxpop.collect.campaign.journal import create_journal

MODEL = Model(support=(10.0, 100.0), weights=(0.7, 0.3))


def contents(campaign: Campaign) -> list[tuple[object, object, list[float]]]:
    ledger = campaign._ledger
    tasks, workers = campaign.task_ids, campaign.worker_ids
    return [
        (tasks[i], workers[u], value.tolist())
        for i, u, value in zip(ledger.task.rows, ledger.worker.rows, ledger.value.rows, strict=True)
    ]


def test_what_is_saved_is_loaded_to_the_last_bit(tmp_path: Path) -> None:
    crowd = make_crowd(1)
    model = Model(support=(10, 100, 1000), dimension=2, prior_mean=[1.0, 2.0], prior_variance=3e5)
    campaign = Campaign(model, ["t00", "no answer", 7, "ümlaut \n \ud800"], value_names=("x", "y"))
    campaign.add_table(crowd.answers)
    campaign.add(7, np.int64(3), [0.1 + 0.2, -1e-17])
    campaign.add_gold({"t05": crowd.truth[5]})
    campaign.save(tmp_path / "c.campaign")
    loaded = Campaign.load(tmp_path / "c.campaign")
    assert contents(loaded) == contents(campaign)
    assert (loaded.task_ids, loaded.worker_ids) == (campaign.task_ids, campaign.worker_ids)
    assert loaded.model.support == model.support
    assert loaded.model.prior_variance == 3e5
    one, other = campaign.result(), loaded.result()
    np.testing.assert_array_equal(one.estimate, other.estimate)
    np.testing.assert_array_equal(one.worker_posterior, other.worker_posterior)
    assert loaded.next(9).pairs == campaign.next(9).pairs


def test_an_open_campaign_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "c.campaign"
    answers = make_crowd(2, 1).answers
    with Campaign.open(path, MODEL) as campaign:
        campaign.add_tasks(["later"])
        campaign.add_table(answers)
        crowd = campaign.relearn()
        known = contents(campaign)
        assert campaign.save(path) == path
        campaign.add("later", "u", 1.0)
    with Campaign.open(path) as again:
        assert contents(again)[:-1] == known
        assert again.model.support == crowd.model.support
        assert again.trust == crowd.trust
        again.add("later", "v", 2.0)
    assert Campaign.load(path).n_answers == answers.n_edges + 2


def test_every_cut_leaves_what_was_whole(tmp_path: Path) -> None:
    path = tmp_path / "c.campaign"
    with Campaign.open(path, MODEL) as campaign:
        campaign.add_tasks(["a"])
        sizes = [path.stat().st_size]
        for n in range(3):
            campaign.add_many(["a", f"t{n}"], [f"u{n}", "w"], [float(n), 0.5])
            sizes.append(path.stat().st_size)
    whole = path.read_bytes()
    for length in range(sizes[0], len(whole) + 1):
        path.write_bytes(whole[:length])
        n_whole = sum(size <= length for size in sizes) - 1
        if length in sizes:
            campaign = Campaign.load(path)
        else:
            with pytest.warns(DataWarning, match="torn"):
                campaign = Campaign.load(path)
        assert campaign.n_answers == 2 * n_whole
        if length % 7 == 0:
            # Going on from a torn file: the tear is cut off, and nothing else.
            with pytest.warns(DataWarning) if length not in sizes else _nothing():
                opened = Campaign.open(path)
            with opened:
                opened.add("new", "u", 1.0)
            assert Campaign.load(path).n_answers == 2 * n_whole + 1
    for length in (0, 5):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="is not a campaign"):
            Campaign.load(path)


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_damage_in_the_middle_is_told_not_hidden(tmp_path: Path) -> None:
    path = tmp_path / "c.campaign"
    with Campaign.open(path, MODEL) as campaign:
        for n in range(4):
            campaign.add("t", n, float(n))
    whole = bytearray(path.read_bytes())
    place = whole.index(b'"value":[[1.0]]') + 10
    whole[place] ^= 1
    path.write_bytes(bytes(whole))
    with pytest.raises(DataError, match="damaged"):
        Campaign.load(path)


@pytest.mark.parametrize("damage", [b"2", b"\r", b"\n"])
@pytest.mark.parametrize("read", [Campaign.load, Campaign.open])
def test_a_whole_last_line_that_was_damaged_is_refused_and_left(
    read: Callable[[Path], Campaign], damage: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "c.campaign"
    with Campaign.open(path, MODEL) as campaign:
        campaign.add("t", "u", 1.0)
        campaign.add("t", "v", 7.5)
    whole = path.read_bytes()
    damaged = whole.replace(b"[[7.5]]", b"[[7" + damage + b"5]]")
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="is whole but damaged") as told:
        read(path)
    assert "\n" not in str(told.value)
    assert path.read_bytes() == damaged


def test_zeros_in_the_last_line_are_those_of_a_failed_disk_write(tmp_path: Path) -> None:
    # With the power gone, the end of a line may be on the disk before its middle.
    path = tmp_path / "c.campaign"
    with Campaign.open(path, MODEL) as campaign:
        campaign.add("t", "u", 1.0)
        campaign.add("t", "v", 7.5)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"[[7.5]]", b"[[\0\0\0]]"))
    with pytest.warns(DataWarning, match="torn"):
        assert Campaign.load(path).n_answers == 1
    path.write_bytes(whole.replace(b"[[1.0]]", b"[[\0\0\0]]"))
    with pytest.raises(DataError, match="damaged"):
        Campaign.load(path)


def test_a_file_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "c.campaign"
    campaign = Campaign.open(path, MODEL)
    with pytest.raises(DataError, match="another process"):
        Campaign.open(path)
    assert Campaign.load(path).n_answers == 0  # reading is free
    with pytest.raises(DataError, match="another process"):
        Campaign(MODEL).save(path)  # it would take the file away from its writer
    campaign.close()
    Campaign.open(path).close()


def test_a_write_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.campaign"
    with Campaign.open(path, MODEL) as campaign:
        campaign.add("t", "u", 1.0)
        before = path.read_bytes()

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space"):
                campaign.add("t", "v", 2.0)
        assert campaign.n_answers == 1
        assert path.read_bytes() == before
        with pytest.raises(DataError, match="text or whole numbers"):
            campaign.add(("a", "tuple"), "v", 2.0)
        campaign.add("t", "v", 2.0)
    assert Campaign.load(path).n_answers == 2


def test_interrupted_between_disk_and_memory_it_must_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.campaign"
    campaign = Campaign.open(path, MODEL)
    campaign.add("t", "u", 1.0)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign._posterior.messages, "touch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        campaign.add("t", "v", 2.0)
    with pytest.raises(ConfigError, match="open or load it again"):
        campaign.add("t", "w", 3.0)
    # It was written, though never acknowledged: at most one such record can be there.
    with Campaign.open(path) as again:
        assert again.n_answers == 2


def test_a_new_file_takes_nobodys_place(tmp_path: Path) -> None:
    path = tmp_path / "c.campaign"
    with Campaign.open(path, MODEL) as campaign:
        campaign.add("t", "u", 1.0)
    before = path.read_bytes()
    create_journal(path, Campaign(MODEL)._records())  # lost the race to make it
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["c.campaign"]


def test_what_is_no_campaign_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("task,worker,value\na,b,1\n")
    with pytest.raises(DataError, match="is not a campaign"):
        Campaign.load(path)
    with pytest.raises(DataError, match="cannot be read"):
        Campaign.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="needs a model"):
        Campaign.open(tmp_path / "nowhere")


ADDING = """
import sys
import voxpop as vp
campaign = vp.Campaign.open(sys.argv[1], vp.Model(support=(10.0, 100.0)))
start = campaign.n_answers
for n in range(start, start + 100_000):
    campaign.add_many([n, n], ["u", "v"], [float(n), 1.0]) if n % 3 else campaign.add(n, "w", 0.5)
    print(n, flush=True)
"""
SAVING = """
import sys
import voxpop as vp
campaign = vp.Campaign(vp.Model(support=(10.0, 100.0)))
for n in range(100_000):
    campaign.add(n, "u", 0.5)
    campaign.save(sys.argv[1])
    print(n, flush=True)
"""


def kill_after(script: str, path: Path, seconds: float) -> list[int]:
    """Run a script, kill it so long after its first word, return what it acknowledged."""
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
    # A line is acknowledged when it is whole.
    return [int(line) for line in (first + rest).split("\n")[:-1]]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
@pytest.mark.filterwarnings("ignore:.*torn")
def test_killed_while_adding_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "c.campaign"
    rng = np.random.default_rng(0)
    expected: set[object] = set()
    for _ in range(3):
        acknowledged = kill_after(ADDING, path, float(rng.uniform(0, 0.05)))
        expected |= set(acknowledged)
        campaign = Campaign.load(path)
        there = set(campaign.task_ids)
        assert expected <= there
        assert len(there) <= len(expected) + 1
        # A batch is there as a whole or not at all.
        count = np.bincount(campaign._ledger.task.rows)
        batches = [n % 3 != 0 for n in campaign.task_ids]
        assert count.tolist() == [2 if pair else 1 for pair in batches]
        expected = there


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_killed_while_saving_the_file_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "c.campaign"
    rng = np.random.default_rng(1)
    for _ in range(2):
        acknowledged = kill_after(SAVING, path, float(rng.uniform(0, 0.05)))
        assert Campaign.load(path).task_ids[: len(acknowledged)] == acknowledged
        assert Campaign.load(path).n_answers <= len(acknowledged) + 1
        path.unlink()


@pytest.mark.filterwarnings("ignore:.*torn")
def test_a_journal_cut_anywhere_is_read_or_refused_in_a_line(tmp_path: Path) -> None:
    path, cut = tmp_path / "c.campaign", tmp_path / "cut.campaign"
    with Campaign.open(path, MODEL) as campaign:
        campaign.add("a", "u", 1.0)
    content = path.read_bytes()
    model_ends = content.index(b"\n", content.index(b'"model"')) + 1
    for length in range(len(content)):
        cut.write_bytes(content[:length])
        for read in (Campaign.load, Campaign.open):
            if length >= model_ends:
                with read(cut) as found:
                    assert found.n_answers in (0, 1)
                continue
            with pytest.raises(DataError, match=r"is cut off before|is not a campaign"):
                read(cut)
            assert len(cut.read_bytes()) == length  # what cannot be read is left as it is


def test_records_that_are_whole_but_make_no_sense_are_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "c.campaign"
    first, model, *_ = Campaign(MODEL)._records()
    for wrong in (
        {"model": 5},
        {"model": {"support": [1.0]}},
        model | {"answers": {"task": ["a"]}},
        model | {"answers": {"task": ["a"], "worker": ["u"], "value": ["much"]}},
        model | {"tasks": [["a"]]},
        model | {"gold": {"task": ["a"], "value": []}},
    ):
        texts = [json.dumps(record).encode() for record in (first, wrong)]
        path.write_bytes(b"".join(b"%08x %s\n" % (zlib.crc32(text), text) for text in texts))
        with pytest.raises(DataError, match="is not a campaign of this version") as told:
            Campaign.load(path)
        assert "\n" not in str(told.value)


def test_a_file_that_cannot_be_opened_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be opened"):
        Campaign.open(tmp_path)

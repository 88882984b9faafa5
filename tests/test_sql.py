"""Answers that stay in a database: read by query, results written back whole or not at all."""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner

from tests.conftest import skip_without
from tests.postgres import PostgreSQL
from voxpop import ConfigError, DataError, Simulation, aggregate, read_answers, write_result
from voxpop.cli import main
from voxpop.data.formats.sql import read_query, safe_url
from voxpop.data.read import long_columns
from voxpop.data.tables import frame, matrix


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Start a server of our own on a free port, in a folder of its own, and stop it again."""
    if importlib.util.find_spec("adbc_driver_postgresql") is None:
        skip_without("postgresql", "adbc-driver-postgresql is not installed")
    server = PostgreSQL()
    try:
        yield server.url()
    finally:
        server.remove()


@pytest.fixture(params=["duckdb", "sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, crowd: Simulation) -> str:
    """Give the URL of a database with a table ``answers`` of the crowd's."""
    table = frame(long_columns(crowd.answers), "pandas")
    if request.param == "duckdb":
        connection = duckdb.connect(str(tmp_path / "crowd.duckdb"))
        connection.register("rows", table)
        connection.execute("CREATE TABLE answers AS SELECT * FROM rows")
        connection.close()
        return f"duckdb:///{tmp_path}/crowd.duckdb"
    if request.param == "sqlite":
        pytest.importorskip("adbc_driver_sqlite")
        with sqlite3.connect(tmp_path / "crowd.db") as lite:
            lite.execute("CREATE TABLE answers (task INTEGER, worker INTEGER, x REAL, y REAL)")
            lite.executemany("INSERT INTO answers VALUES (?, ?, ?, ?)", table.values.tolist())
        lite.close()
        return f"sqlite:///{tmp_path}/crowd.db"
    url: str = request.getfixturevalue("postgres")
    import adbc_driver_postgresql.dbapi as driver
    import pyarrow as pa

    with driver.connect(url) as connection, connection.cursor() as cursor:
        for name in ("answers", "voxpop_tasks", "voxpop_workers"):
            cursor.execute(f"DROP TABLE IF EXISTS {name}")
        cursor.adbc_ingest("answers", pa.Table.from_pandas(table), mode="create")
        connection.commit()
    return url


def test_answers_come_out_of_a_database(database: str, crowd: Simulation) -> None:
    answers = read_answers(database, query="answers")
    theirs, ours = aggregate(crowd.answers), aggregate(answers)
    order = [ours.task_ids.tolist().index(task) for task in theirs.task_ids.tolist()]
    np.testing.assert_allclose(ours.estimate[order], theirs.estimate, rtol=1e-9)
    part = read_answers(database, query="SELECT task, worker, x AS value FROM answers WHERE x > 50")
    assert part.n_edges == int((crowd.answers.value[:, 0] > 50).sum())
    with pytest.raises(DataError) as error:
        read_answers(database, query="SELECT nothing FROM nowhere")
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_results_go_back_whole_or_not_at_all(database: str, crowd: Simulation) -> None:
    result = aggregate(crowd.answers)
    told = write_result(result, database)
    assert told.startswith("voxpop_tasks and voxpop_workers to")
    assert "secret" not in told
    again = read_query(database, "voxpop_tasks")
    codes, ids = again.ids("task")
    order = [ids[codes].tolist().index(task) for task in result.task_ids.tolist()]
    np.testing.assert_array_equal(matrix(again, ["x", "y"])[order], result.estimate)
    # Once there, they are not overwritten unless told.
    with pytest.raises(DataError, match="say existing='replace'"):
        write_result(result, database)
    write_result(result, database, existing="replace")
    write_result(result, database, existing="append")
    assert len(read_query(database, "voxpop_tasks").numbers("x")) == 2 * len(result.task_ids)


def test_a_failure_half_way_leaves_nothing(database: str, crowd: Simulation) -> None:
    """The second table is in the way: the first is not written either."""
    result = aggregate(crowd.answers, "average")
    write_result(result, database)
    _run(database, "DROP TABLE voxpop_tasks")
    with pytest.raises(DataError):
        write_result(result, database)
    with pytest.raises(DataError):
        read_answers(database, query="voxpop_tasks")


def _run(url: str, statement: str) -> None:
    kind, _, rest = url.partition(":///")
    if kind == "duckdb":
        duckdb.connect(rest).execute(statement).close()
    elif kind == "sqlite":
        with sqlite3.connect(rest) as lite:
            lite.execute(statement)
        lite.close()
    else:
        import adbc_driver_postgresql.dbapi as driver

        with driver.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            connection.commit()


def test_commands_take_a_url(database: str, tmp_path: Path) -> None:
    out = str(tmp_path / "r")
    for command in (
        ["aggregate", database, "--query", "answers", "--method", "median", "-o", out],
        ["export", out, database],
    ):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.stderr
        assert "secret" not in done.stderr
    assert len(read_query(database, "voxpop_tasks").numbers("x")) == 60


def test_a_missing_driver_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite.dbapi", None)
    (tmp_path / "crowd.db").touch()
    with pytest.raises(ConfigError, match=r"pip install 'voxpop\[sql\]'"):
        read_answers(f"sqlite:///{tmp_path}/crowd.db", query="answers")


def test_what_cannot_be_is_told(tmp_path: Path, crowd: Simulation) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_answers(f"sqlite:///{tmp_path}/none.db", query="answers")
    with pytest.raises(ConfigError, match="a database needs a query"):
        read_answers(f"duckdb:///{tmp_path}/none.duckdb")
    with pytest.raises(ConfigError, match="query is for databases"):
        read_answers(tmp_path / "a.csv", query="answers")
    with pytest.raises(ConfigError, match="prefix must be a plain name"):
        write_result(aggregate(crowd.answers, "average"), "duckdb:///x", prefix='a"; DROP')
    assert (
        safe_url("postgresql://u:pa:ss@h/d?password=x&a=b")
        == "postgresql://u:***@h/d?password=***&a=b"
    )

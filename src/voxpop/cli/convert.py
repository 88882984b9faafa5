"""`voxpop convert`, `export` and `formats`: in and out of the users' tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from voxpop.cli import common
from voxpop.words import counted


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="IN...")
@click.argument("out", type=click.Path(path_type=Path))
@common.reading_options
@click.option(
    "--workers",
    type=click.Path(path_type=Path),
    help="File for how many objects each worker found and missed.",
)
def convert(sources: tuple[str, ...], out: Path, workers: Path | None, **options: Any) -> None:
    """Turn the export of a tool into a table of answers.

    IN is a file, a folder or several files of CVAT jobs or COCO files, or the URL of a database.
    OUT is CSV, TSV, Parquet or JSON lines, by its ending, with one answer per row; - is CSV on
    standard output. Boxes and points become objects: one task each, called IMAGE#LABEL#NUMBER.

    \b
        voxpop convert export.json answers.csv --question age
        voxpop convert job_*.xml boxes.parquet --iou-threshold 0.4 --workers workers.csv
        voxpop convert mos.csv answers.csv --from wide --missing -1
    """
    from voxpop.data.read import long_columns
    from voxpop.data.tables import write_table
    from voxpop.errors import require

    answers = common.take_answers(options)(common.one_or_all(sources))
    require(
        workers is None or answers.objects is not None,
        "--workers counts objects, but no marks were matched; add --objects",
    )
    common.say_notes(answers)
    write_table(long_columns(answers), common.file_or_stdout(out))
    if workers is not None and answers.objects is not None:
        write_table(answers.objects.workers(), workers)
    common.say(
        f"wrote {counted(answers.n_edges, 'answer')} of {counted(answers.n_workers, 'worker')} to "
        f"{counted(answers.n_tasks, 'task')} to {out}"
    )


@click.command()
@click.argument("result", type=click.Path(path_type=Path))
@click.argument("out")
@click.option("--source", multiple=True, help="The export that the answers came from; repeatable.")
@click.option("--to", help="Format to write; see `voxpop formats`.  [default: that of --source]")
@click.option("--task", help="As when reading the export.")
@click.option("--question", help="As when reading the export.")
@click.option("--reasons", help="MTurk: file of worker and reason, to reject the worker's work.")
@click.option("--bonuses", help="MTurk: file of worker and amount, per approved assignment.")
@click.option(
    "--existing",
    type=click.Choice(["error", "replace", "append"]),
    default="error",
    help="Database: what to do if the tables exist.",
)
@click.option("--prefix", default="voxpop", help="Database: prefix of the tables.")
def export(
    result: Path,
    out: str,
    source: tuple[str, ...],
    to: str | None,
    reasons: str | None,
    bonuses: str | None,
    existing: Any,
    prefix: str,
    **reading: Any,
) -> None:
    """Write a result in the format of a tool, or into a database.

    RESULT is the directory that `voxpop aggregate` wrote.

    \b
        voxpop export answers.voxpop predictions.json --source export.json
        voxpop export boxes.voxpop annotations.xml --source jobs/
        voxpop export batch.voxpop reviewed.csv --source Batch.csv --reasons reasons.csv
        voxpop export answers.voxpop labels.parquet --to training
        voxpop export answers.voxpop sqlite:///crowd.db --existing replace
    """
    from voxpop.data.formats import export_result, is_url, sniff, write_result
    from voxpop.data.formats.parsing import number
    from voxpop.data.truths import read_by_worker
    from voxpop.errors import require
    from voxpop.results.result import Result

    loaded = Result.load(result)
    if is_url(out):
        common.say(f"wrote {write_result(loaded, out, prefix, existing)}")
        return
    origin = common.one_or_all(source)
    require(bool(to or origin), "name the format with --to, or the export with --source")
    amounts = read_by_worker(bonuses, "amount") if bonuses else {}
    written = export_result(
        *(loaded, common.file_or_stdout(Path(out)), to or sniff(origin), origin),
        reasons=read_by_worker(reasons, "reason") if reasons else None,
        bonuses={worker: number(item, f"{bonuses}: {worker}") for worker, item in amounts.items()},
        **reading,
    )
    common.say(f"wrote {written} to {out}")


@click.command()
@common.json_option
def formats(as_json: bool) -> None:
    """List the formats that are read and written.

    \b
        voxpop formats
    """
    from voxpop.data.formats import FORMATS, WRITERS

    if as_json:
        common.print_json({"read": FORMATS, "written": WRITERS})
        return
    for title, listed in (("read (--from)", FORMATS), ("written (--to)", WRITERS)):
        click.echo(title)
        for name, summary in listed.items():
            click.echo(f"  {name:13} {summary}")

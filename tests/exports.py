"""Small exports as the tools write them, made here; and a crowd whose answers they hold."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

# Three people draw in two images of 600 x 400 pixels: (image, worker) -> boxes with a label.
IMAGES = {"a.jpg": 0, "b.jpg": 1}
DRAWN: dict[tuple[str, str], list[tuple[str, float, float, float, float]]] = {
    ("a.jpg", "alice"): [("car", 100, 50, 200, 150), ("car", 300, 60, 420, 160)],
    ("a.jpg", "bob"): [("car", 303, 57, 423, 157), ("car", 103, 53, 203, 153)],
    ("a.jpg", "carol"): [("car", 97, 47, 197, 147)],
    ("b.jpg", "alice"): [("person", 12, 24, 60, 200)],
    ("b.jpg", "bob"): [("person", 9, 21, 57, 197), ("car", 500, 300, 590, 390)],
    ("b.jpg", "carol"): [],
}
# With a quorum of one half: two cars in a, one person in b; bob's car in b is an extra.
OBJECTS = ["a.jpg#car#1", "a.jpg#car#2", "b.jpg#person#1"]
MEAN: dict[str, list[float]] = {
    "a.jpg#car#1": [100, 50, 200, 150],
    "a.jpg#car#2": [301.5, 58.5, 421.5, 158.5],
    "b.jpg#person#1": [10.5, 22.5, 58.5, 198.5],
}
PEOPLE = {"alice": 10, "bob": 11, "carol": 12}


def label_studio() -> list[dict[str, Any]]:
    """Two tasks: boxes, a nose, an age, stars; one cancelled, one ground truth."""
    tasks = []
    for image, number in IMAGES.items():
        annotations = []
        for worker, person in PEOPLE.items():
            regions: list[dict[str, Any]] = [
                {
                    **_region(f"r{k}", "tag", "rectanglelabels"),
                    "value": {
                        "x": 100 * left / 600, "y": 100 * top / 400,
                        "width": 100 * (right - left) / 600,
                        "height": 100 * (bottom - top) / 400,
                        "rotation": 0, "rectanglelabels": [label],
                    },
                }
                for k, (label, left, top, right, bottom) in enumerate(DRAWN[image, worker])
            ]  # fmt: skip
            regions.append(
                {
                    **_region("k", "kp", "keypointlabels"),
                    "value": {"x": 5.0 + number, "y": person / 4, "width": 0.5,
                              "keypointlabels": ["Nose"]},
                }
            )  # fmt: skip
            age = {"id": "n", "from_name": "age", "to_name": "img", "type": "number"}
            regions.append({**age, "value": {"number": 30 + person + number}})
            stars = {"id": "s", "from_name": "stars", "to_name": "img", "type": "rating"}
            regions.append({**stars, "value": {"rating": 3 + (person + number) % 2}})
            annotations.append(_annotation(person if worker != "bob" else _full(person), regions))
        annotations.append(_annotation(10, [], was_cancelled=True))
        if number == 0:
            annotations.append(_annotation(99, annotations[0]["result"], ground_truth=True))
        tasks.append(
            {"id": number + 1, "data": {"image": image}, "annotations": annotations,
             "predictions": []}
        )  # fmt: skip
    return tasks


def _region(name: str, control: str, kind: str) -> dict[str, Any]:
    size = {"original_width": 600, "original_height": 400, "image_rotation": 0}
    return {"id": name, "from_name": control, "to_name": "img", "type": kind, **size}


def _full(person: int) -> dict[str, Any]:
    return {"id": person, "first_name": "", "email": "bob@example.org"}


def _annotation(person: Any, regions: list[dict[str, Any]], **flags: bool) -> dict[str, Any]:
    told = {"was_cancelled": False, "ground_truth": False, **flags}
    return {"id": 1000, "completed_by": person, "lead_time": 4.3, **told, "result": regions}


def cvat(worker: str) -> str:
    """One job: boxes, a point per image, a tag that is left out."""
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>', "<annotations>", "<version>1.1</version>",
        f"<meta><job><id>{PEOPLE[worker]}</id><size>2</size><mode>annotation</mode>",
        "<owner><username>root</username><email>r@example.org</email></owner>",
        f"<assignee><username>{worker}</username><email>x@example.org</email></assignee>",
        "<labels><label><name>car</name></label></labels></job>",
        "<dumped>2024-07-23 16:01:20</dumped></meta>",
    ]  # fmt: skip
    for image, number in IMAGES.items():
        lines.append(f'<image id="{number}" name="{image}" width="600" height="400">')
        for label, *sides in DRAWN[image, worker]:
            named = zip(("xtl", "ytl", "xbr", "ybr"), sides, strict=True)
            at = " ".join(f'{key}="{side:.2f}"' for key, side in named)
            lines.append(f'<box label="{label}" source="manual" occluded="0" {at} z_order="0">')
            lines.append('<attribute name="age">34</attribute></box>')
        point = f"{18 + number}.00,{PEOPLE[worker]}.00"
        lines.append(f'<points label="nose" source="manual" occluded="0" points="{point}"/>')
        lines.append('<tag label="good" source="manual"></tag></image>')
    return "\n".join([*lines, "</annotations>"])


def coco(worker: str | None = None) -> dict[str, Any]:
    """All annotators in one document, or the document of one."""
    annotations: list[dict[str, Any]] = []
    categories = {"car": 1, "person": 2}
    for (image, person), drawn in DRAWN.items():
        if worker in (None, person):
            for label, left, top, right, bottom in drawn:
                annotation = {
                    "id": len(annotations) + 1, "image_id": IMAGES[image] + 1,
                    "category_id": categories[label], "iscrowd": 0,
                    "bbox": [left, top, right - left, bottom - top],
                }  # fmt: skip
                annotations.append(annotation | ({} if worker else {"annotator": person}))
    return {
        "images": [
            {"id": number + 1, "file_name": image, "width": 600, "height": 400}
            for image, number in IMAGES.items()
        ],
        "categories": [{"id": key, "name": name} for name, key in categories.items()],
        "annotations": annotations,
    }


MTURK = [
    *("HITId", "HITTypeId", "Title", "Reward", "AssignmentId", "WorkerId", "AssignmentStatus"),
    *("WorkTimeInSeconds", "Input.image_url", "Answer.taskAnswers", "Answer.years", "Approve"),
    "Reject",
]


def mturk() -> str:
    """A batch of two HITs; the form holds an age, radio buttons, boxes and a remark."""
    rows = []
    for image, number in IMAGES.items():
        for worker, person in PEOPLE.items():
            boxes = [
                {"left": left, "top": top, "width": right - left, "height": bottom - top,
                 "label": label}
                for label, left, top, right, bottom in DRAWN[image, worker]
            ]  # fmt: skip
            form = {
                "age": str(30 + person + number),
                "mood": {str(k): k == 1 + (person + number) % 3 for k in range(1, 4)},
                "annotatedResult": {
                    "boundingBoxes": boxes,
                    "inputImageProperties": {"height": 400, "width": 600},
                },
                "remark": '=HYPERLINK("x")\n"quoted", and so on',
            }
            status = "Rejected" if (worker, number) == ("carol", 1) else "Submitted"
            rows.append(
                [f"3H{number}", "T", "Boxes", "$0.05", f"A{number}{person}", worker.upper(),
                 status, "30", f"https://x/{image}", json.dumps([form]), 31 + person, "", ""]
            )  # fmt: skip
    return _csv([MTURK, *rows])


def toloka() -> str:
    """Two tasks by three workers, one of them a control task; one answer rejected."""
    head = ["INPUT:image", "INPUT:page", "OUTPUT:score", "OUTPUT:comment", "GOLDEN:score",
            "HINT:text", "ASSIGNMENT:task_id", "ASSIGNMENT:assignment_id",
            "ASSIGNMENT:worker_id", "ASSIGNMENT:status"]  # fmt: skip
    rows: list[list[Any]] = []
    for image, number in IMAGES.items():
        for worker, person in PEOPLE.items():
            status = "REJECTED" if (worker, number) == ("carol", 0) else "APPROVED"
            gold = "4.5" if number == 1 else ""
            rows.append([image, "p", person / 2 + number, "fine", gold, "", f"000{number}",
                         "x", worker, status])  # fmt: skip
    return _csv([head, *rows], "\t")


def zooniverse() -> str:
    """Classifications with a slider, marks of two tools, and an answer in words."""
    head = ["classification_id", "user_name", "user_id", "user_ip", "workflow_id",
            "workflow_name", "workflow_version", "created_at", "gold_standard", "expert",
            "metadata", "annotations", "subject_data", "subject_ids"]  # fmt: skip
    rows: list[list[Any]] = []
    for image, number in IMAGES.items():
        for worker, person in PEOPLE.items():
            boxes = [
                {"tool": 0, "frame": 0, "details": [], "tool_label": label, "x": left, "y": top,
                 "width": right - left, "height": bottom - top}
                for label, left, top, right, bottom in DRAWN[image, worker]
            ]  # fmt: skip
            point = {"tool": 1, "frame": 0, "details": [], "x": 10.5, "y": person}
            annotations = [
                {"task": "T0", "task_label": "How many?", "value": str(person + number)},
                {"task": "T1", "task_label": "Draw", "value": boxes},
                {"task": "T2", "task_label": "Click", "value": [point]},
                {"task": "T3", "task_label": "Sure?", "value": "Yes"},
            ]
            name = worker if worker != "carol" else ""
            subject = json.dumps({str(5000 + number): {"retired": None, "Filename": image}})
            rows.append([len(rows), name, "", f"ip-{worker}", 77, "w", "1.2", "2024", "", "",
                         "{}", json.dumps(annotations), subject, 5000 + number])  # fmt: skip
    return _csv([head, *rows])


SUREAL: dict[str, Any] = {
    "dataset_name": "test",
    "ref_videos": [{"content_id": 0, "content_name": "foo", "path": "foo.png"}],
    "dis_videos": [
        {"content_id": 0, "asset_id": 0, "os": {"Tom": 3, "Jerry": [4, 5]}, "path": "baz1.png"},
        {"content_id": 0, "asset_id": 1, "os": {"Tom": 2, "Jerry": 2}, "path": "baz2.png"},
    ],
    "ref_score": 5.0,
}


def sureal_program(trap: str = "") -> str:
    """The same as a .py file, with other statements around."""
    lines = [f"{name} = {value!r}" for name, value in SUREAL.items()]
    return "\n".join(["import os", trap, *lines, "width = os.getpid()"])


# A small model is generous and wavers, a large one is steadier, a person is asked once.
JUDGES: dict[str, tuple[str, int, list[int]]] = {
    "small": ("LLM", 3, [3, 0, 1, -1, 2, 1]),
    "large": ("LLM", 3, [0, 1, 0, 0, -1, 0]),
    "ann": ("HUMAN", 1, [0, 0, 1, 0, 0, -1]),
}
JUDGED = [
    {
        "item": f"q{i + 1}",
        "judge": judge,
        "score": score + off[i] + run % 2,
        "run": run,
        "kind": kind,
    }
    for i, score in enumerate([6, 3, 8, 5, 7, 4])
    for judge, (kind, n_runs, off) in JUDGES.items()
    for run in range(n_runs)
]
LONG = [[f"img_{i:03}.jpg", w, 20 * i + k * i] for i in (1, 2, 3) for k, w in enumerate(PEOPLE)]
BOXES = [
    [image, worker, label, left, top, right - left, bottom - top]
    for (image, worker), drawn in DRAWN.items()
    for label, left, top, right, bottom in drawn
]
WIDE = "PVS_ID,S1,S2,S3,S4,MOS\nv1,5,4,-1,5,4.7\nv2,2,1,2,4,2.3\nv3,3,3,4,3,3.3\nv4,4,-1,4,5,4.3\n"


PRICES = """photo;labeller;price
p1;ann;1.250,50 €
p1;bob ;1.100,00 €
p2;ann;990,00 €
p2;bob;don't know
p2;bob;
p1;ann;1.250,50 €
"""


def write_all(folder: Path) -> None:
    """Write an export of every tool, under the names that the docs use."""
    texts = {
        "project-1.json": json.dumps(label_studio()),
        "coco.json": json.dumps(coco()),
        "Batch_1_batch_results.csv": mturk(),
        "assignments.tsv": toloka(),
        "classifications.csv": zooniverse(),
        "dataset.py": sureal_program(),
        "mos.csv": WIDE,
        "answers.csv": _csv([["task", "worker", "value"], *LONG]),
        "boxes.csv": _csv([["image", "worker", "label", "left", "top", "width", "height"], *BOXES]),
        "responses.csv": _csv([["task", "worker"], *map(list, DRAWN)]),
        "prices.csv": PRICES,
        "judges.jsonl": "\n".join(map(json.dumps, JUDGED)) + "\n",
    }
    for worker in PEOPLE:
        texts[f"jobs/{worker}/annotations.xml"] = cvat(worker)
        texts[f"people/{worker}.json"] = json.dumps(coco(worker))
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def xlsx(sheets: dict[str, list[list[Any]]], shared: bool = True) -> bytes:
    """A workbook as spreadsheets write it: numbers as they are, texts shared or in their cells."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    texts: dict[str, int] = {}

    def cell(row: int, column: int, item: Any) -> str:
        place = f'r="{chr(65 + column)}{row}"'
        if isinstance(item, int | float):
            return f"<c {place}><v>{item!r}</v></c>"
        if not shared:
            return f'<c {place} t="inlineStr"><is><t>{escape(item)}</t></is></c>'
        return f'<c {place} t="s"><v>{texts.setdefault(item, len(texts))}</v></c>'

    members, listed, related = {}, [], []
    for k, (name, rows) in enumerate(sheets.items(), start=1):
        body = ""
        for i, row in enumerate(rows, start=1):
            filled = "".join(cell(i, j, item) for j, item in enumerate(row) if item is not None)
            body += f'<row r="{i}">{filled}</row>'
        members[f"xl/worksheets/sheet{k}.xml"] = (
            f'<worksheet xmlns="{main}"><sheetData>{body}</sheetData></worksheet>'
        )
        listed.append(f'<sheet name="{escape(name)}" sheetId="{k}" r:id="rId{k}"/>')
        related.append(f'<Relationship Id="rId{k}" Target="worksheets/sheet{k}.xml"/>')
    members["xl/workbook.xml"] = (
        f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{"".join(listed)}</sheets></workbook>'
    )
    members["xl/_rels/workbook.xml.rels"] = f"<Relationships>{''.join(related)}</Relationships>"
    told = "".join(f"<si><t xml:space='preserve'>{escape(text)}</t></si>" for text in texts)
    members["xl/sharedStrings.xml"] = f'<sst xmlns="{main}">{told}</sst>'
    return zipped(members)


def ods(sheets: dict[str, list[list[Any]]]) -> bytes:
    """A workbook as LibreOffice writes it, with a million empty rows at the end."""

    def cell(item: Any) -> str:
        if item is None:
            return "<table:table-cell/>"
        if isinstance(item, int | float):
            stored = f'office:value-type="float" office:value="{item!r}"'
            return f"<table:table-cell {stored}><text:p>{item}</text:p></table:table-cell>"
        text = f"<text:p>{escape(item)}</text:p>"
        return f'<table:table-cell office:value-type="string">{text}</table:table-cell>'

    rest = '<table:table-cell table:number-columns-repeated="16380"/></table:table-row>'
    tables = "".join(
        f'<table:table table:name="{escape(name)}">'
        + "".join(f"<table:table-row>{''.join(map(cell, row))}{rest}" for row in rows)
        + f'<table:table-row table:number-rows-repeated="1048000">{rest}</table:table>'
        for name, rows in sheets.items()
    )
    spaces = " ".join(f'xmlns:{name}="urn:{name}"' for name in ("office", "table", "text"))
    content = f"<office:document-content {spaces}>{tables}</office:document-content>"
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    return zipped({"mimetype": kind, "content.xml": content})


def zipped(members: dict[str, str]) -> bytes:
    """A ZIP file of these texts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return out.getvalue()


def _csv(rows: list[list[Any]], delimiter: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue()

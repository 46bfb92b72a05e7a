"""`overdrive study overlap`: the page of a run, from the files of its ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from overdrive import main
from overdrive.errors import CommandError
from overdrive.study import overlap


def _site(calls: int, early: int, comm_ns: int, hidden_ns: int) -> dict[str, Any]:
    return {
        "place": "app<1>+0x10", "collective": "bcast", "ranks": 2, "bytes": 65536, "calls": calls,
        "early": early, "traced": 0, **dict.fromkeys(overlap.MEANS, 0), "comm_ns": comm_ns,
        "hidden_ns": hidden_ns,
    }  # fmt: skip


def _call(rank: int, number: int, begin: int, touches: list[dict[str, int]]) -> dict[str, Any]:
    return {
        "number": number, "collective": "bcast", "bytes": 65536, "rank": rank, "ranks": 2,
        "begin_ns": begin, "end_ns": begin + 9_000_000, "node_of_rank": [0, 1],
        "steps": [{"rank": rank, "what": "send", "peer": 1 - rank, "between_nodes": True,
                   "segment": 0, "bytes": 4096, "begin_ns": begin, "end_ns": begin + 1_000_000}],
        "returned_ns": begin + 2_000_000, "next_ns": begin + 12_000_000, "touches": touches,
    }  # fmt: skip


def _write(folder: Path) -> None:
    for rank in range(2):
        touch = {"source": 0, "offset": 4096, "bytes": 8192, "touched_ns": 15_000_000,
                 "opened_ns": 18_000_000}  # fmt: skip
        timeline = {"rank": rank, "size": 2, "clock": "same",
                    "calls": [_call(rank, 3, 10_000_000 + rank, [touch] * rank)]}  # fmt: skip
        (folder / f"timeline-{rank}.json").write_text(json.dumps(timeline))
        statistics = {"rank": rank, "overlap": [_site(4, rank * 2, 10_000_000, 3_000_000)]}
        (folder / f"statistics-{rank}.json").write_text(json.dumps(statistics))


def test_means_are_those_of_all_ranks() -> None:
    (row,) = overlap.places(
        [{"overlap": [_site(1, 0, 100, 0)]}, {"overlap": [_site(3, 2, 20, 50)]}, {}]
    )
    assert (row["calls"], row["early"]) == (4, 2)
    assert row["comm_ns"] == pytest.approx(40)
    assert row["hidden_ns"] == pytest.approx(50)


def test_calls_that_do_not_fit_together_are_left_out() -> None:
    one = {"calls": [_call(0, 1, 0, []), _call(0, 2, 0, [])]}
    other = {"calls": [_call(1, 1, 0, []), {**_call(1, 2, 0, []), "collective": "alltoall"}]}
    (found,) = overlap.pictured([one, other])
    assert [call["number"] for call in found] == [1, 1]


def test_the_page_shows_waits_and_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(tmp_path)
    assert main.run(["study", "overlap", "--measured", str(tmp_path)]) == 0
    path = tmp_path / "overlap.html"
    assert capsys.readouterr().out == f"{path}\n"
    text = path.read_text()
    assert "app&lt;1&gt;+0x10" in text
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")
    end = text.index("</svg>") + len("</svg>")
    figure = ElementTree.fromstring(text[text.index("<svg ") : end])
    titles = [title.text or "" for title in figure.findall(".//{*}title")]
    assert "wait for 8192 bytes of rank 0, from byte 4096: 5.00 to 8.00 ms" in titles
    assert sum(title.startswith("the call: ") for title in titles) == 2
    assert any(title.startswith("send, rank 1, 4096 bytes, to another node") for title in titles)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="there is no file"):
        main.run(["study", "overlap", "--measured", str(tmp_path)])
    with pytest.raises(CommandError, match="name the command"):
        main.run(["study", "overlap"])
    _write(tmp_path)
    (tmp_path / "timeline-0.json").write_text("[]")
    with pytest.raises(CommandError, match="not the file of a rank"):
        main.run(["study", "overlap", "--measured", str(tmp_path)])

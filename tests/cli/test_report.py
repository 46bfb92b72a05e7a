"""`overdrive report`: made-up records of ranks become numbers, advice, a page, a comparison."""

from __future__ import annotations

import json
import shutil
import subprocess
import time

import pytest
from overdrive.report import advice, arrivals, command, html, record

from . import pages

pytestmark = pytest.mark.quick

SLOT_NS = 64_000_000
SLOTS = 940


def made_up(rank: int, size: int, slow: int = 3) -> dict:
    """A rank of a halo exchange; rank `slow` computes longest, so it waits least."""
    part = 0.2 if rank == slow else 1.0
    wait = [int(SLOT_NS * 0.3 * part * (0.7 + 0.1 * ((i + rank) % 7))) for i in range(SLOTS)]
    sites = [
        {"function": "MPI_Waitall", "module": "app", "offset": 4160, "calls": 500_000,
         "ns": sum(wait), "longest_ns": 3_000_000},
        {"function": "MPI_Isend", "module": "app", "offset": 4096, "calls": 500_000,
         "ns": 10**9, "longest_ns": 40_000},
    ]  # fmt: skip
    if rank == 0:
        sites[0]["place"] = "exchange_halo<double> at halo.cc:88 (app+0x1040)"
    neighbours = sorted({(rank + 1) % size, (rank - 1) % size})
    return {
        "overdrive": "0.1.0", "rank": rank, "size": size, "node": f"node{2 * rank // size}",
        "host_library": "Open MPI v4.1.4", "elapsed_ns": SLOTS * SLOT_NS,
        "counters": {"sends_cell": 1000, "bytes_cell": 6_000_000, "sends_host": 20,
                     "fallback_remote": 20, "matched_posted": 700, "matched_unexpected": 300,
                     "region_bytes_peak": 1 << 20},
        "collectives": [
            {"collective": "bcast", "way": "host", "algorithm": "", "calls": 10, "bytes": 80,
             "ns": 0, "longest_ns": 0, "arrivals": 0, "apart_ns": 0, "longest_apart_ns": 0},
            {"collective": "allreduce", "way": "shared memory", "algorithm": "", "calls": 100,
             "bytes": 800, "ns": 10**6, "longest_ns": 10**5, "arrivals": 50, "apart_ns": 10**5,
             "longest_apart_ns": 9000 + rank},
        ],
        "call_sites": sites, "cpus": str(rank), "peak_memory_bytes": (1 + rank) << 20,
        "why_not_shared": "", "crowding": [],
        "recording": {
            "sizes": [{"function": "MPI_Isend", "below_bytes": 1 << 13, "calls": 500_000,
                       "bytes": 500_000 << 12, "ns": 10**9}],
            "peers": [{"rank": peer, "messages": 250_000, "bytes": 250_000 << 12}
                      for peer in neighbours],
            "timeline": {"slot_ns": SLOT_NS if rank else SLOT_NS // 2,
                         "wait": wait if rank else [w // 2 for w in wait for _ in (0, 1)],
                         "send": [1000] * 10},
        },
    }  # fmt: skip


def with_arrivals(rank: int, size: int) -> dict:
    """Three broadcasts of all ranks, of which rank 5 has not kept the last one; a call of two."""
    late_ns = [[0, 0, 50], [10_000, 30_000_000, 0]]
    calls = [[i, 0, 10**9 * (i + 1) + (late_ns[rank == 3][i])] for i in range(3)]
    comms = [{"id": "a", "ranks": size, "calls": calls[: 2 if rank == 5 else 3]}]
    if rank in (2, 6):
        comms.append({"id": "b", "ranks": 2, "calls": [[7, 1, 5 * 10**9 + 1000 * rank]]})
    sites = [{"function": "MPI_Bcast", "module": "app", "offset": 4160},
             {"function": "MPI_Reduce", "module": "app", "offset": 80}]  # fmt: skip
    return {
        "node": 4 * (rank // 4), "clock_error_ns": 700 + rank, "sites": sites,
        "communicators": comms,
    }  # fmt: skip


def write(folder, size: int, **changes):
    folder.mkdir()
    for rank in range(size):
        found = made_up(rank, size)
        found.update(changes)
        (folder / f"rank-{rank}.json").write_text(json.dumps(found))
    return folder


@pytest.fixture
def run8(tmp_path):
    return write(tmp_path / "run", 8)


def test_numbers_of_all_ranks_are_joined(run8):
    found = record.summarise(record.load(run8), "run")
    assert found["ranks_of_job"] == found["ranks_recorded"] == 8
    assert found["nodes"] == ["node0", "node1"]
    assert found["calls"] == 8_000_000
    assert found["sites"][0]["place"].startswith("exchange_halo<double>")
    assert found["sites"][1]["place"] == "app+0x1000"
    assert found["sites"][0]["ranks"] == 8
    assert found["matrix"]["bytes"][2][3] == found["matrix"]["bytes"][3][2] == 250_000 << 12
    assert found["matrix"]["bytes"][2][5] == 0
    # Rank 0 has slots of half the length: two of them are one of the others.
    line = found["timeline"]
    assert (line["slot_ns"], line["slots"]) == (SLOT_NS, SLOTS)
    each = [found["ranks"][r]["activities"]["wait"] for r in range(8)]
    assert [sum(rank) for rank in line["ranks"]] == [wait + 10_000 for wait in each]
    assert sum(line["activities"]["wait"]) == sum(each)
    apart = next(row for row in found["collectives"] if row["collective"] == "allreduce")
    assert (apart["arrivals"], apart["longest_apart_ns"]) == (400, 9007)


def test_many_ranks_share_rows_of_the_matrix(tmp_path):
    found = record.summarise(record.load(write(tmp_path / "run", 300)), "run")
    assert found["matrix"]["ranks_per_row"] == 2
    assert len(found["matrix"]["bytes"]) == 150
    total = sum(sum(row) for row in found["matrix"]["messages"])
    assert total == 300 * 2 * 250_000
    pages.check(html.render({**found, "advice": []}))


def _titles(found):
    return [one["title"] for one in advice.advise(found)]


def test_advice_names_the_slow_rank_and_what_fell_back(run8):
    titles = _titles(record.summarise(record.load(run8), "run"))
    assert "Others wait for rank 3" in titles
    assert "Collectives that the installed MPI library makes" in titles


def test_advice_about_places_and_small_shares(tmp_path):
    crowded = write(tmp_path / "crowded", 4, crowding=["ranks 0-1 share 1 core while 2 are idle"])
    assert "Ranks or threads share cores" in _titles(record.summarise(record.load(crowded), ""))
    many = write(tmp_path / "many", 4, cpus="0-1", node="a")
    assert "More ranks than processors" in _titles(record.summarise(record.load(many), ""))
    loose = write(tmp_path / "loose", 4, cpus="0-7")
    assert "Ranks may wander" in _titles(record.summarise(record.load(loose), ""))
    apart = write(tmp_path / "apart", 4, why_not_shared="no memfd")
    assert "Ranks of a node do not share memory" in _titles(
        record.summarise(record.load(apart), "")
    )
    idle = write(tmp_path / "idle", 4, call_sites=made_up(1, 4)["call_sites"][1:])
    assert "The run is not bound by communication" in _titles(
        record.summarise(record.load(idle), "")
    )


def test_arrivals_of_all_ranks_are_joined(tmp_path):
    ranks = [made_up(rank, 8) | {"arrivals": with_arrivals(rank, 8)} for rank in range(8)]
    ranks[0]["call_sites"].append(
        {"function": "MPI_Bcast", "module": "app", "offset": 4160, "calls": 3, "ns": 1,
         "longest_ns": 1, "place": "step at app.c:7"}
    )  # fmt: skip
    found = record.summarise(ranks, "run")
    assert found["arrivals"]["clock_error_ns"] == 707
    bcast, reduce_ = found["arrivals"]["places"]
    assert (bcast["function"], bcast["place"]) == ("MPI_Bcast", "step at app.c:7")
    assert (bcast["ranks"], bcast["calls"], bcast["longest_ns"]) == (8, 2, 30_000_000)
    assert bcast["median_ns"] == bcast["on_node_ns"] == 15_005_000
    assert bcast["nodes_ns"] == 0
    assert bcast["last"] == [[3, 2]]
    assert bcast["classes"] == [0, 1, 0, 0, 1, 0]
    assert (reduce_["place"], reduce_["nodes_ns"], reduce_["on_node_ns"]) == ("app+0x50", 4000, 0)
    assert arrivals.delays_us(ranks, 8, "app.c:7", 10) == [
        [0, 0, 0, 10, 0, 0, 0, 0],
        [0, 0, 0, 30_000, 0, 0, 0, 0],
    ]
    text = html.render({**found, "advice": []})
    assert pages.check(text).figures == 7
    assert "step at app.c:7" in text


def test_page_is_whole_and_self_contained(overdrive, run8):
    run = overdrive("report", str(run8))
    assert run.code == 0, run.err
    assert "8 ranks" in run.out
    text = (run8 / "report.html").read_text()
    page = pages.check(text)
    assert page.figures == 5  # ranks, time line, two of sizes, matrix
    assert set(page.links) == {f"#{anchor}" for anchor in page.sections}
    assert {"what-to-change", "time-line", "who-talks-to-whom", "what-fell-back-and-why"} <= set(
        page.sections
    )
    assert "exchange_halo&lt;double&gt;" in text


def test_statistics_of_one_rank_are_enough_for_a_page(overdrive, tmp_path):
    plain = {key: value for key, value in made_up(0, 2).items()
             if key not in ("recording", "call_sites", "cpus", "peak_memory_bytes")}  # fmt: skip
    (tmp_path / "stats.0").write_text(json.dumps(plain))
    run = overdrive("report", str(tmp_path / "stats.0"), "-o", str(tmp_path / "page.html"))
    assert run.code == 0, run.err
    text = (tmp_path / "page.html").read_text()
    pages.check(text)
    assert "only 1 ranks are recorded" in text
    assert "overdrive --record mpirun" in text


def test_comparison_of_two_runs(overdrive, run8, tmp_path):
    other = write(tmp_path / "other", 8, elapsed_ns=SLOTS * SLOT_NS // 2)
    run = overdrive("report", "--diff", str(run8), str(other))
    assert run.code == 0, run.err
    lines = {line.split("  ")[0].strip(): line for line in run.out.splitlines() if line.strip()}
    assert lines["run"].endswith("-50.0 %")
    assert lines["MPI calls"].endswith("same")
    found = json.loads(overdrive("report", "--diff", "--json", str(run8), str(other)).out)
    assert found["elapsed_ns"] == [SLOTS * SLOT_NS, SLOTS * SLOT_NS // 2]
    assert found["same_ranks"]


def test_json_holds_what_the_page_shows(overdrive, run8):
    found = json.loads(overdrive("report", "--json", str(run8)).out)
    assert found["mpi_share"] == pytest.approx(command.summary(run8)["mpi_share"])
    assert found["advice"]


def test_what_is_no_record_is_refused(overdrive, tmp_path, run8):
    cases = {
        str(tmp_path / "nowhere"): "does not exist",
        str(tmp_path): "holds no rank-0.json",
    }
    (tmp_path / "text").write_text("{}")
    cases[str(tmp_path / "text")] = "is no record of a rank"
    for path, words in cases.items():
        run = overdrive("report", path)
        assert run.code == 2
        assert words in run.err
    assert "--diff takes two" in overdrive("report", "--diff", str(run8)).err
    foreign = made_up(0, 9)
    (run8 / "rank-8.json").write_text(json.dumps({**foreign, "rank": 8}))
    assert "different runs" in overdrive("report", str(run8)).err


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rank": 8}, "is no record of a rank: rank 8 of 8"),
        ({"rank": "0"}, "is no record of a rank: rank is '0', not a whole number"),
        ({"counters": [1]}, "is no record of a rank: counters are not named"),
        ({"call_sites": [{"function": "MPI_Send"}]}, "is damaged, or was recorded by a version"),
        ({"recording": {"timeline": 3}}, "is damaged, or was recorded by a version"),
    ],
)
def test_a_forged_record_is_refused(overdrive, tmp_path, changed, words):
    folder = write(tmp_path / "forged", 8)
    (folder / "rank-0.json").write_text(json.dumps({**made_up(0, 8), **changed}))
    run = overdrive("report", str(folder))
    assert run.code == 2, run.err
    assert words in run.err
    assert "Traceback" not in run.err


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_browser_draws_a_large_run(tmp_path):
    """64 ranks with a million calls each; the browser says what it finds when all is drawn."""
    folder = write(tmp_path / "run", 64)
    text = html.render(command.summary(folder))
    assert len(text) < 4 << 20
    script = (
        "<script>var all = document.querySelector('[data-act=in]'); all.click(); all.click();"
        "var box = document.querySelectorAll('figure.zoom svg svg')[1].getAttribute('viewBox');"
        "document.title = [document.querySelectorAll('svg[role=img]').length, box,"
        "document.documentElement.scrollWidth <= innerWidth].join(';');</script>"
    )
    (tmp_path / "page.html").write_text(text.replace("</body>", script + "</body>"))
    begin = time.monotonic()
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900",
         f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"file://{tmp_path}/page.html"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    print(f"browser: {time.monotonic() - begin:.1f} s")
    title = done.stdout.partition("<title>")[2].partition("</title>")[0]
    # Two halvings: the middle quarter is shown, in both parts alike; nothing runs out of the page.
    assert title == f"5;{SLOTS * 3 / 8:g} 0 {SLOTS / 4:g} 64;true"

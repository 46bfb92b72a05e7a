"""`overdrive explain` and `overdrive info --algorithms`: the library's own view of collectives."""

from __future__ import annotations

import json

import pytest
from overdrive import collectives
from overdrive.tune import rules

pytestmark = pytest.mark.quick


@pytest.fixture
def program(tool, real):
    """Return the environment of a build that has the program."""
    if not (tool.parent / collectives.TOOL).exists():
        pytest.skip(f"{collectives.TOOL} is not built beside {tool}: run `make`")
    return real


def test_the_list_has_every_family_with_numbers_and_conditions(overdrive, program):
    run = overdrive("info", "--algorithms", "--json", env=program)
    assert run.code == 0, run.err
    families = {family["collective"]: family for family in json.loads(run.out)}
    assert len(families) == 17
    for family in families.values():
        numbers = [algorithm["number"] for algorithm in family["algorithms"]]
        assert numbers[0] == 100
        assert len(set(numbers)) == len(numbers)
        assert all(algorithm["doc"] for algorithm in family["algorithms"])
        assert family["message_size"]
    ring = {a["name"]: a for a in families["allreduce"]["algorithms"]}["ring"]
    assert ring["intel_numbers"] == [{"number": 8, "hierarchical": False}]
    assert ring["needs"] == ["an operation that commutes"]


def test_the_list_as_text(overdrive, program):
    run = overdrive("info", "--algorithms", env=program)
    assert run.code == 0, run.err
    assert "allreduce (message size: bytes of the vector" in run.out
    assert "rabenseifner" in run.out
    assert "[3, 4h]" in run.out


def test_explain_names_the_rule_that_fires_and_those_that_do_not(overdrive, program):
    run = overdrive(
        "explain", "allreduce", "64K", "--ranks", "8", "--nodes", "2",
        env={**program, "OVERDRIVE_ADJUST_ALLREDUCE": "2:0-1023;ring:64K;1"},
    )  # fmt: skip
    assert run.code == 0, run.err
    assert (
        "Chosen: both levels, ring (leaders 1, pipeline 524288)\n"
        "  by OVERDRIVE_ADJUST_ALLREDUCE, clause 2\n"
        "  in rules: ring/hierarchical, or its number 106"
    ) in run.out
    assert "clause 1\n    rabenseifner/flat: 0-1023\n    does not match" in run.out
    assert "Cost by the model" in run.out


def test_what_a_node_does_in_shared_memory_has_names(overdrive, program):
    run = overdrive("info", "--algorithms", "--json", env=program)
    assert run.code == 0, run.err
    for family in json.loads(run.out):
        names = {a["name"]: a["number"] for a in family["algorithms"]}
        assert names["shared_memory"] == 200, family["collective"]
    run = overdrive(
        "explain", "allreduce", "64K", "--ranks", "4",
        env={**program, "OVERDRIVE_ADJUST_ALLREDUCE": "shared_slices:4K-"},
    )  # fmt: skip
    assert run.code == 0, run.err
    assert (
        "Chosen: shared memory, shared_slices\n"
        "  by OVERDRIVE_ADJUST_ALLREDUCE, clause 1\n"
        "  calls that shared memory cannot serve: messages, as shared_slices\n"
        "  in rules: shared_slices/hierarchical, or its number 202"
    ) in run.out


def test_explain_uses_the_words_of_the_statistics(overdrive, program):
    """Inside a node no algorithm between ranks takes part."""
    run = overdrive("explain", "allreduce", "64K", "--ranks", "4", env=program)
    assert run.code == 0, run.err
    chosen = run.out.split("Chosen: ")[1].splitlines()
    assert chosen[0] == "shared memory"
    assert chosen[2].startswith("  calls that shared memory cannot serve: messages, as ")
    assert any(line.endswith(" shared memory") for line in run.out.splitlines())
    flat = overdrive("explain", "bcast", "8", "--ranks", "4", "--nodes", "4", env=program).out
    assert "Chosen: messages, " in flat


def test_explain_takes_settings(overdrive, program):
    for words in (["--set", "adjust_bcast=binomial"], ["--set=adjust_bcast=chain"]):
        run = overdrive("explain", "bcast", "8", "--nodes", "2", *words, env=program)
        assert run.code == 0, run.err
    assert "Chosen: messages, chain" in run.out
    before = overdrive("--set", "adjust_bcast=chain", "explain", "bcast", "8", "--nodes", "2",
                       env=program)  # fmt: skip
    assert "Chosen: messages, chain" in before.out
    wrong = overdrive("explain", "bcast", "8", "--set", "spni=1us", env=program)
    assert wrong.code == 2
    assert "did you mean spin?" in wrong.err


def test_explain_tells_what_was_measured(overdrive, program, tmp_path):
    evidence = {"65536": {"ring/flat": 30.0, "built-in": 50.5, "host": 45.0}}
    ring = {"collective": "allreduce", "algorithm": "ring", "bytes": ["48K", "96K"],
            "ranks": [8, 8], "evidence": evidence}  # fmt: skip
    other = {**ring, "bytes": ["96K", "1M"], "evidence": {"131072": {"ring/flat": 1.0}}}
    tuning = tmp_path / "tuning.json"
    tuning.write_text(rules.render("", "Open MPI v4.1.4", "2026-01-01", [other, ring]).replace(
        '"fingerprint": "",', ""))  # fmt: skip
    words = ("explain", "allreduce", "64K", "--ranks", "8", "--nodes", "4")
    run = overdrive(*words, "--set", f"tuning={tuning}", env=program)
    assert run.code == 0, run.err
    assert "65536 bytes: 30 us ring/flat, 45 us host, 50.5 us built-in" in run.out
    assert "131072" not in run.out, "of a rule that does not match"
    assert "not known before the job runs" not in run.out
    assert "not known before the job runs" in overdrive(*words, env=program).out


@pytest.mark.parametrize("value", ["0", "1", "2", "65536", "65537", "-1", "x", ""])
def test_explain_answers_whatever_the_parameters(overdrive, program, value):
    """A radix of 1 once made it count for ever."""
    names = ("RADIX", "LEADERS", "WINDOW", "SEGMENT", "PIPELINE")
    variables = {f"OVERDRIVE_ADJUST_ALLREDUCE_{name}": value for name in names}
    run = overdrive(
        "explain", "allreduce", "1M", "--ranks", "8", "--nodes", "2", env={**program, **variables}
    )
    assert run.code == 0, run.err
    assert ("Problems" in run.out) == (value in ("0", "1", "65537", "-1", "x"))
    if value == "65537":
        assert "must be a number from 1 to 65536" in run.out


def test_explain_falls_back_and_says_why(overdrive, program):
    run = overdrive(
        "explain", "allreduce", "64K", "--ranks", "8", "--nodes", "8", "--no-commute", "--json",
        env={**program, "OVERDRIVE_ADJUST_ALLREDUCE": "ring"},
    )  # fmt: skip
    assert run.code == 0, run.err
    report = json.loads(run.out)
    assert report["rules"][0]["verdict"] == "matches, but needs an operation that commutes"
    assert report["decision"]["origin"] == "cost model"
    usable = [item for item in report["candidates"] if not item["why_not"]]
    assert usable[0]["algorithm"] == report["decision"]["algorithm"]
    assert [item["model_ns"] for item in usable] == sorted(item["model_ns"] for item in usable)


def test_explain_reports_mistakes_in_rules(overdrive, program):
    run = overdrive("explain", "bcast", "8", env={**program, "OVERDRIVE_ADJUST_BCAST": "knomail"})
    assert run.code == 0, run.err
    assert "did you mean knomial?" in run.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bcst", "8"], "'bcst' is no collective"),
        (["bcast", "many"], "'many' is no size"),
        (["bcast"], "needs a collective and a size"),
        (["bcast", "8", "--ranks", "2", "--nodes", "4"], "more nodes than ranks"),
        (["bcast", "8", "--frob", "2"], "--frob is unknown"),
        (["bcast", "8", "--ranks", "99999999"], "from 1 to 16777216"),
        (["bcast", "8", "--ranks", "1e3"], "from 1 to 16777216"),
        (["bcast", "8", "--ranks"], "its value is missing"),
        (["bcast", "99999999999999999999T"], "is no size"),
    ],
)
def test_explain_says_what_is_wrong(overdrive, program, arguments, message):
    run = overdrive("explain", *arguments, env=program)
    assert run.code == 2
    assert message in run.err

#!/usr/bin/env python3
"""Tests the comparison itself: a harness that sees no differences must be known to see them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools" / "hosts")]

from support.nodes import COMMAND, CannotMakeNodes, Nodes  # noqa: E402

from conformance import lab, report, selection, store  # noqa: E402
from conformance.compare import (  # noqa: E402
    DIFFERENCE,
    FAIL,
    FLAKY_WITH,
    FLAKY_WITHOUT,
    PASS,
    TRIES,
    WITH_FIRST,
    WITHOUT_FIRST,
    Baselines,
    Result,
    Run,
    compare,
)
from conformance.jobs import Traffic, settings_label  # noqa: E402
from conformance.judges import verdict  # noqa: E402
from conformance.mpi4py_tests import PythonResults, SuiteRun, read_records  # noqa: E402
from conformance.mpich_tests import HostResults, absence  # noqa: E402
from conformance.processes import Outcome, run  # noqa: E402
from conformance.testlist import Test, parse_line, read_lists, without_foreign_variables  # noqa: E402


class TestLists(unittest.TestCase):
    """Lines and folders of lists."""

    def test_line(self) -> None:
        """All keys of a line arrive."""
        test = parse_line(
            "coll",
            "bcast 10 arg=-count=3 arg=x env=A=1=2 timeLimit=600 mem=1.5 resultTest=TestStatus "
            "xfail=ticket1 mpiexecarg=-disable-auto-cleanup # remark",
        )
        assert test is not None
        self.assertEqual(test.identity, "coll/bcast 10 -count=3 x A=1=2")
        self.assertEqual(test.limit_seconds, 600)
        self.assertEqual(test.memory_gib, 1.5)
        self.assertEqual(test.judge, "TestStatus")
        self.assertEqual(test.launcher_arguments, ("-disable-auto-cleanup",))

    def test_defaults_and_empty_lines(self) -> None:
        """A bare name means two ranks; remarks and empty lines mean nothing."""
        self.assertEqual(parse_line("a", "prog"), Test("a", "prog", 2))
        self.assertIsNone(parse_line("a", "  # remark"))
        with self.assertRaises(ValueError):
            parse_line("a", "prog 2 unheard=1")

    def test_folders(self) -> None:
        """Generated lists win, folders are followed, repeated lines count once."""
        with tempfile.TemporaryDirectory() as name:
            build, source = Path(name, "build"), Path(name, "source")
            for path, text in (
                (build / "f77" / "testlist", "pt2pt\n#skipped\n"),
                (source / "f77" / "testlist", "never 1\n"),
                (source / "f77" / "pt2pt" / "testlist", "!../util:lib\none 3\none 3\ntwo\n"),
                (source / "f77" / "pt2pt" / "testlist.dtp", "one 4\n"),
            ):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            lists = read_lists(build, source, ["f77"])
        names = [test.identity for test in lists.tests]
        self.assertEqual(names, ["f77/pt2pt/one 3", "f77/pt2pt/two 2", "f77/pt2pt/one 4"])
        self.assertEqual(lists.prerequisites, [("f77/pt2pt/../util", "lib")])

    def test_foreign_variables(self) -> None:
        """Tests that differ only in variables which a host ignores become one."""
        tests = [
            Test("coll", "a", environment=(("MPIR_CVAR_X", "1"),)),
            Test("coll", "a", environment=(("MPIR_CVAR_X", "2"),)),
            Test("coll", "a", environment=(("OTHER", "2"),)),
        ]
        kept = without_foreign_variables(tests, ("MPIR_CVAR_",))
        self.assertEqual([test.identity for test in kept], ["coll/a 2", "coll/a 2 OTHER=2"])


class TestJudges(unittest.TestCase):
    """Rules for passing."""

    def test_plain(self) -> None:
        """One line "No Errors", nothing else, status 0."""
        self.assertEqual(verdict("", Outcome(0, " No Errors\n", 1, False)), "")
        for outcome in (
            Outcome(0, "", 1, False),
            Outcome(1, " No Errors\n", 1, False),
            Outcome(0, " No Errors\n No Errors\n", 1, False),
            Outcome(0, "Found 3 errors\n No Errors\n", 1, False),
            Outcome(0, " No Errors\n", 9, True),
        ):
            self.assertNotEqual(verdict("", outcome), "")

    def test_noise(self) -> None:
        """What a launcher says about itself is not the program's."""
        warning = (
            "[odn1-head:0017] plm:rsh: Warning: setpgid(22,22) failed in parent with errno=x\n"
        )
        self.assertEqual(verdict("", Outcome(0, f"{warning} No Errors\n", 1, False)), "")
        for output in (
            warning,
            f"{warning}Found 1 errors\n No Errors\n",
            f"a {warning} No Errors\n",
        ):
            self.assertNotEqual(verdict("", Outcome(0, output, 1, False)), "")

    def test_expected_failure(self) -> None:
        """Some programs must end with a failure."""
        self.assertEqual(verdict("TestErrFatal", Outcome(1, "anything", 1, False)), "")
        self.assertNotEqual(verdict("TestErrFatal", Outcome(0, "", 1, False)), "")
        self.assertEqual(verdict("TestStatusNoErrors", Outcome(1, "No Errors\n", 1, False)), "")
        self.assertNotEqual(verdict("TestStatusNoErrors", Outcome(1, "oops\n", 1, False)), "")


class TestPresence(unittest.TestCase):
    """A job in which Overdrive was not must not count as one that passes with it."""

    def test_absence(self) -> None:
        """Who ends well has written counters."""
        test = Test("init", "initstat")
        self.assertEqual(absence(test, Outcome(0, "", 1, False), Traffic(ranks=1)), "")
        self.assertEqual(absence(test, Outcome(1, "", 1, False), Traffic()), "")
        self.assertNotEqual(absence(test, Outcome(0, "", 1, False), Traffic()), "")
        self.assertEqual(
            absence(Test("init", "session_self"), Outcome(0, "", 1, False), Traffic()), ""
        )


class TestComparison(unittest.TestCase):
    """From runs to a verdict."""

    def outcome(self, without: str, with_: str, order: str = WITHOUT_FIRST) -> tuple[str, int]:
        """Return status and number of runs for scripted runs: p passes, f fails."""
        scripts = {False: iter(without), True: iter(with_)}
        runs = 0

        def one(_test, overdrive: bool, _seconds: float) -> Run:
            nonlocal runs
            runs += 1
            return Run("" if next(scripts[overdrive]) == "p" else "broken", 0.1)

        with tempfile.TemporaryDirectory() as name:
            stored = Baselines(Path(name, "b.json"), "v")
            result = compare(Test("a", "b"), one, stored, order)
        return result.status, runs

    def test_statuses(self) -> None:
        """Each pattern of passes and failures has its status."""
        self.assertEqual(TRIES, 3)
        self.assertEqual(self.outcome("p", "p"), (PASS, 2))
        self.assertEqual(self.outcome("ppp", "fff"), (DIFFERENCE, 6))
        self.assertEqual(self.outcome("ppp", "ffp"), (FLAKY_WITH, 6))
        self.assertEqual(self.outcome("ppf", "fff"), (FLAKY_WITHOUT, 6))
        self.assertEqual(self.outcome("ppf", "fp"), (FLAKY_WITHOUT, 5))
        self.assertEqual(self.outcome("ff", ""), (FAIL, 2))
        self.assertEqual(self.outcome("fp", ""), (FLAKY_WITHOUT, 2))

    def test_with_first(self) -> None:
        """What passes with Overdrive is not run without it; failures are judged as ever."""
        self.assertEqual(self.outcome("", "p", WITH_FIRST), (PASS, 1))
        self.assertEqual(self.outcome("ppp", "fff", WITH_FIRST), (DIFFERENCE, 6))
        self.assertEqual(self.outcome("ppp", "fp", WITH_FIRST), (FLAKY_WITH, 5))
        self.assertEqual(self.outcome("ff", "f", WITH_FIRST), (FAIL, 3))

    def test_store(self) -> None:
        """Stored results are used again, but not for another version of the host."""
        with tempfile.TemporaryDirectory() as name:
            path = Path(name, "b.json")
            first = Baselines(path, "v1")
            first.put("t", True, 1.0, "", False)
            first.save()
            self.assertIsNotNone(Baselines(path, "v1").get("t"))
            self.assertIsNone(Baselines(path, "v2").get("t"))


class TestStore(unittest.TestCase):
    """Results of many invocations, and the page made of them."""

    def test_settings_are_kept_apart(self) -> None:
        """What a run with a forced way says changes nothing about the defaults, and is shown."""
        forced = settings_label({"copy_path": "pull", "reach_min": "4K"})
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            for settings, status in (("", PASS), (forced, DIFFERENCE), ("", PASS)):
                found = HostResults("h", "1", order=WITH_FIRST, settings=settings)
                traffic = Traffic(own=7, ranks=2, ways={"pull": 4321 if settings else 0})
                found.results = [Result("pt2pt/a 2", status, "broken", traffic=traffic)]
                store.add_mpich(work, found)
                store.add_mpi4py(work, [PythonResults("h", "1", 2, 9, settings=settings)])
            self.assertEqual(store.kinds(work, "h"), [("", ""), ("", forced)])
            whole = report.Report()
            for layout, settings in store.kinds(work, "h"):
                found, parts = store.load(work, "h", "1", settings, layout)
                assert found is not None
                self.assertEqual((found.settings, parts[0].settings), (settings, settings))
                whole.mpich.append(found)
                whole.mpi4py += parts
            self.assertIsNone(store.load(work, "h", "2", forced)[0])
        self.assertEqual([found.results[0].status for found in whole.mpich], [PASS, DIFFERENCE])
        page = report.page(whole)
        self.assertIn("**1 differences** among 2 tests compared", page)
        self.assertIn(f"- h {forced} `pt2pt/a 2`: broken", page)
        details = report.details(whole)
        line = next(line for line in details.splitlines() if f"`{forced}`" in line)
        self.assertIn("| 4321 |", line)

    def test_what_is_by_suite_has_a_page_of_its_own(self) -> None:
        """Nothing is lost between the two pages, and each links to the other."""
        mpich = HostResults("h", "1", order=WITH_FIRST)
        mpich.results = [Result("pt2pt/a 2", PASS, "")]
        for python in ([], [PythonResults("h", "1", 2, 9)]):
            whole = report.Report(mpich=[mpich], mpi4py=python)
            first, details = report.page(whole), report.details(whole)
            self.assertIn(f"({report.DETAILS})", first)
            self.assertIn(f"({report.PAGE})", details)
            self.assertNotIn("## MPICH's test suite", first)
            self.assertIn("## MPICH's test suite on h 1", details)
            self.assertEqual("## mpi4py's test suite" in details, bool(python))

    def test_what_is_known_of_a_host_stands_beside_its_test(self) -> None:
        """With any settings; of the same test on another host nothing is known."""
        (host, test), fault = next(iter(report.FAULTS_OF_HOSTS.items()))
        whole = report.Report()
        for name, settings in ((host, ""), (host, "reach=off"), ("h", "")):
            found = HostResults(name, "1", order=WITH_FIRST, settings=settings)
            found.results = [Result(f"{test} 6", FLAKY_WITH, "no end")]
            whole.mpich.append(found)
        page = report.page(whole)
        self.assertIn(f"- {host} `{test} 6`: no end ({fault})", page)
        self.assertIn(f"- {host} reach=off `{test} 6`: no end ({fault})", page)
        self.assertIn(f"- h `{test} 6`: no end\n", page)

    def test_layouts_are_kept_apart(self) -> None:
        """Results of one machine, of each layout and of a layout with settings do not mix."""
        kinds = [("", ""), ("2x2:round-robin", ""), ("3+1+2", ""), ("3+1+2", "reach=off")]
        with tempfile.TemporaryDirectory() as name:
            work, kept = Path(name, "work"), Path(name, "kept")
            work.mkdir()
            for number, (layout, settings) in enumerate(kinds):
                found = HostResults("h", "1", order=WITH_FIRST, settings=settings, layout=layout)
                traffic = Traffic(own=7, host=11, collectives=1000 + number)
                status = DIFFERENCE if layout == "3+1+2" and settings else PASS
                found.results = [Result("coll/a 4", status, "broken", traffic=traffic)]
                store.add_mpich(work, found)
                part = PythonResults("h", "1", 6, 9, settings=settings, layout=layout)
                store.add_mpi4py(work, [part])
            store.add_mpich(work, HostResults("hh", "1", layout="2x2"))
            store.keep(work, kept)
            whole = report.Report()
            self.assertEqual(store.kinds(kept, "h"), kinds)
            for layout, settings in store.kinds(kept, "h"):
                found, parts = store.load(kept, "h", "1", settings, layout)
                assert found is not None
                self.assertEqual((found.layout, found.settings), (layout, settings))
                self.assertEqual((parts[0].layout, parts[0].settings), (layout, settings))
                whole.mpich.append(found)
                whole.mpi4py += parts
        self.assertEqual(
            [f.results[0].traffic.collectives for f in whole.mpich], [1000, 1001, 1002, 1003]
        )
        page = report.page(whole)
        self.assertIn("**1 differences** among 4 tests compared", page)
        self.assertIn("- h in the lab 3+1+2 reach=off `coll/a 4`: broken", page)
        self.assertIn("| MPICH's on h 1 | 2x2:round-robin | default |", page)
        details = report.details(whole)
        usual, _, section = details.partition("### With `reach=off`")
        lines = [line for line in usual.splitlines() if line.startswith("| `2x2:round-robin` |")]
        self.assertIn("| 11 | 1001 |", lines[0])
        self.assertIn("| `3+1+2` | MPICH's, h | 1 |", section)
        self.assertIn("| 11 | 1003 |", section)
        usual = details.partition("## MPICH's test suite on h 1")[2].partition("## ")[0]
        self.assertIn("| **all** | 1 |", usual)

    def test_calls_begun_by_whoever_comes_first(self) -> None:
        """The page says how many they were, where they were forced, and nowhere else."""
        forced = settings_label(selection.ARRIVAL)
        whole = report.Report()
        for settings in ("", forced):
            found = HostResults("h", "1", order=WITH_FIRST, settings=settings, layout="3x2")
            traffic = Traffic(own=7, collectives=1000, arrivals=765 if settings else 0)
            found.results = [Result("coll/a 6", PASS, traffic=traffic)]
            whole.mpich.append(found)
        usual, _, section = report.details(whole).partition(f"### With `{forced}`")
        self.assertIn("of these by first_arrival |", section)
        self.assertIn("| `3x2` | MPICH's, h | 1 |", section)
        self.assertIn("| 1000 | 765 |", section)
        self.assertNotIn("of these by first_arrival", usual)

    def test_results_of_several_machines(self) -> None:
        """Later results replace earlier ones; tests that a later run left out keep theirs."""
        with tempfile.TemporaryDirectory() as name:
            kept = Path(name, "kept")
            for machine, status in (("a", DIFFERENCE), ("b", PASS)):
                work = Path(name, machine)
                work.mkdir()
                found = HostResults("h", "1", order=WITH_FIRST, overdrive=machine)
                traffic = Traffic(own=7, ranks=2, ways={"pull": 3, "push": 0})
                found.results = [Result("pt2pt/a 2", status, traffic=traffic)]
                if machine == "a":
                    found.results.append(Result("pt2pt/b 2", PASS, seconds_with=1.0))
                else:
                    found.skipped = {"pt2pt/b 2": "takes long", "pt2pt/c 2": "takes long"}
                store.add_mpich(work, found)
                left_out = ["m"] if machine == "b" else []
                part = PythonResults("h", "1", 2, 9, passed_with=9, left_out=left_out)
                store.add_mpi4py(work, [part])
                store.keep(work, kept)
            results, parts = store.load(kept, "h", "1", "")
        assert results is not None
        self.assertEqual(
            [(result.identity, result.status) for result in results.results],
            [("pt2pt/a 2", PASS), ("pt2pt/b 2", PASS)],
        )
        self.assertEqual(results.results[0].traffic, Traffic(own=7, ranks=2, ways={"pull": 3}))
        self.assertEqual(results.skipped, {"pt2pt/c 2": "takes long"})
        self.assertEqual(results.overdrive, "a, b")
        self.assertEqual((parts[0].passed_with, parts[0].left_out), (9, []))


class TestLayouts(unittest.TestCase):
    """Which node the ranks of a test lie on."""

    def test_texts(self) -> None:
        """Both notations, with an order or without; anything else is refused."""
        for text, shares, order in (
            ("2x2", (2, 2), lab.BLOCK),
            ("3x2", (2, 2, 2), lab.BLOCK),
            ("3+1+2", (3, 1, 2), lab.BLOCK),
            ("2x2:round-robin", (2, 2), lab.ROUND_ROBIN),
        ):
            layout = lab.parse_layout(text)
            self.assertEqual(layout, lab.Layout(text, shares, order))
            self.assertEqual(layout.ranks, sum(shares))
        self.assertEqual(lab.parse_layout("2x2:block"), lab.parse_layout("2x2"))
        for text in ("", "2", "1x4", "2x0", "3+0", "2x2x2", "2x2:", "2x2:seq", "2+2:", "x2"):
            with self.assertRaises(ValueError, msg=text):
                lab.parse_layout(text)

    def test_any_number_of_ranks(self) -> None:
        """Nodes get ranks in turn until each has its share, then all over again."""
        layout = lab.parse_layout("3+1+2")
        for ranks, counts in (
            (1, [1, 0, 0]),
            (2, [1, 1, 0]),
            (3, [1, 1, 1]),
            (4, [2, 1, 1]),
            (6, [3, 1, 2]),
            (7, [4, 1, 2]),
            (10, [5, 2, 3]),
            (12, [6, 2, 4]),
        ):
            self.assertEqual(layout.counts(ranks), counts)
        self.assertEqual(lab.parse_layout("2x2").counts(7), [4, 3])

    def test_left_out(self) -> None:
        """One rank says nothing over nodes; variants of an algorithm are for long runs."""
        host = SimpleNamespace(name="h")
        single = Test("coll", "a", 1)
        variant = Test("coll", "a", 4, environment=(("MPIR_CVAR_X", "1"),))
        for test, short, in_lab, reason in (
            (single, False, False, ""),
            (single, False, True, selection.ONE_RANK),
            (variant, True, False, ""),
            (variant, False, True, ""),
            (variant, True, True, selection.VARIANT),
            (Test("coll", "a", 4), True, True, ""),
        ):
            self.assertEqual(selection.excluded(host, test, short, in_lab=in_lab), reason)

    def test_command(self) -> None:
        """Jobs are started as users start them; what ranks need reaches all nodes."""
        cluster = lab.Lab(lab.parse_layout("2x2:round-robin"), Nodes(2))
        for overdrive in (False, True):
            command = cluster.command(
                "mpiexec",
                3,
                overdrive,
                ["./a", "-x"],
                options=["-p", "a b"],
                variables={"V": "1 2"},
            )
            text = shlex.join(command)
            self.assertIn("--layout 2+1 --order round-robin", text)
            self.assertIn(" -x 'V=1 2' ", text)
            self.assertEqual("--without-overdrive" in text, not overdrive)
            self.assertTrue(text.endswith("--options '-p '\"'\"'a b'\"'\"'' ./a -x"), text)

    def test_nodes_go_down(self) -> None:
        """Whoever interrupts a run leaves no nodes; they stand once for everything in between."""
        try:
            with self.assertRaises(KeyboardInterrupt), lab.up(lab.parse_layout("2x2")) as cluster:
                assert cluster is not None
                self.assertIn(cluster.nodes.lab, [found["name"] for found in labs()])
                raise KeyboardInterrupt
        except lab.CannotMakeLab as reason:
            self.skipTest(str(reason))
        self.assertNotIn(cluster.nodes.lab, [found["name"] for found in labs()])
        with lab.up(None) as nothing:
            self.assertIsNone(nothing)

    def test_no_lab_here(self) -> None:
        """Where there can be no nodes the reason is told, and nothing else hides as that."""
        for problem, told in (
            (CannotMakeNodes, lab.CannotMakeLab),
            (AssertionError, AssertionError),
        ):
            with (
                mock.patch.object(Nodes, "__enter__", side_effect=problem("no right")),
                self.assertRaisesRegex(told, "no right"),
                lab.up(lab.parse_layout("2x2")),
            ):
                self.fail("there are no nodes")


def labs() -> list[dict]:
    """Return what `overdrive lab` says about the labs that are up."""
    query = subprocess.run([*COMMAND, "status", "--json"], capture_output=True, check=True)
    return json.loads(query.stdout)


class TestRecords(unittest.TestCase):
    """What ranks of mpi4py's suite leave behind."""

    def test_crash_is_found(self) -> None:
        """The worst outcome over ranks counts; an unended test is told."""
        with tempfile.TemporaryDirectory() as name:
            Path(name, "0.jsonl").write_text(
                '{"start": "m.A.a"}\n{"end": "m.A.a", "outcome": "ok", "text": ""}\n'
                '{"start": "m.A.b"}\n{"end": "m.A.b", "outcome": "ok", "text": ""}\n',
                encoding="utf-8",
            )
            Path(name, "1.jsonl").write_text(
                '{"start": "m.A.a"}\n{"end": "m.A.a", "outcome": "failure", "text": "x"}\n'
                '{"start": "m.A.b"}\n{"sta',
                encoding="utf-8",
            )
            outcomes, texts, unfinished = read_records(Path(name))
        self.assertEqual(unfinished, {1: "m.A.b"})
        self.assertIn("rank 1: x", texts["m.A.a"])
        seen = SuiteRun(outcomes)
        self.assertEqual(seen.summary("m.A.a", 2), "failure")
        self.assertEqual(seen.summary("m.A.b", 2), "not run")


class TestProcesses(unittest.TestCase):
    """Starting and ending jobs."""

    def test_output_and_status(self) -> None:
        """Both streams and the status arrive."""
        with tempfile.TemporaryDirectory() as name:
            outcome = run(["sh", "-c", "echo a; echo b >&2; exit 3"], {}, Path(name), 20)
        self.assertEqual((outcome.status, outcome.output, outcome.timed_out), (3, "a\nb\n", False))

    def test_nothing_is_left_behind(self) -> None:
        """A job over its limit ends with all processes, also those in sessions of their own."""
        with tempfile.TemporaryDirectory() as name:
            script = "setsid sh -c 'echo $$ >pid; exec sleep 1000' & wait"
            environment = {"PATH": "/usr/bin:/bin"}
            note = Path(name, "pid")
            # A busy machine may not get as far as the inner sleep within the shorter limits.
            for limit in (1.0, 8.0, 60.0):
                started = time.monotonic()
                outcome = run(["sh", "-c", script], environment, Path(name), limit)
                self.assertTrue(outcome.timed_out)
                self.assertLess(time.monotonic() - started, 10 * limit + 60)
                if note.exists() and note.read_text(encoding="utf-8").endswith("\n"):
                    break
            pid = note.read_text(encoding="utf-8").strip()
            deadline = time.monotonic() + 60
            while Path("/proc", pid).exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            state = Path("/proc", pid, "stat")
            self.assertTrue(not state.exists() or ") Z " in state.read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()

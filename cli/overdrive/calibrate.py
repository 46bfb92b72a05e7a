"""`overdrive calibrate`: measures this node and writes the thresholds that later runs load.

Samples are kept beside the output while it measures, so that a call which was stopped goes on where
it was; the file is written at once and as a whole, when everything is there.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from overdrive import thresholds, trusted
from overdrive.arguments import Parser
from overdrive.errors import CommandError
from overdrive.installation import Installation
from overdrive.measure import (
    Measuring,
    Pair,
    Sample,
    Stopped,
    pairs_of_each_kind,
    parse,
    read_samples,
    write_samples,
)
from overdrive.progress import Progress

SECONDS = 110.0
QUICK_SECONDS = 16.0
"""Of measuring; starting and computing stay below two minutes and 20 seconds with them."""

SHORTEST_RUN_SECONDS = 1.0

SHAPE_TITLES = {"usual": "unchanged buffer", "app": "rewritten and read buffer"}


def standard_file(environment: Mapping[str, str]) -> Path:
    """Return the file that the library loads by itself."""
    base = environment.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        home = environment.get("HOME", "")
        if not home:
            raise CommandError("neither HOME nor XDG_CONFIG_HOME is set: give --output FILE")
        base = f"{home}/.config"
    return Path(base) / "overdrive" / "calibration.toml"


class Partial:
    """What has been measured so far, in a file beside the output.

    Its first line is the fingerprint; `# seconds A,B S` tells how long a pair has been measured.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path = path
        self.samples: list[Sample] = []
        self.seconds: dict[tuple[int, int], float] = {}
        self._head = f"# {fingerprint}\n"
        self._read()
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self.samples:
            path.write_text(self._head)
        self._file = path.open("a")

    def _read(self) -> None:
        try:
            trusted.check_own_file(self.path)
            lines = self.path.read_text(errors="replace").splitlines(keepends=True)
        except FileNotFoundError:
            return
        if not lines or lines[0] != self._head:
            return
        for line in lines[1:]:
            passed = re.fullmatch(r"# seconds (\d+),(\d+) ([0-9.]+)\n", line)
            if passed:
                cpus = (int(passed[1]), int(passed[2]))
                self.seconds[cpus] = self.seconds.get(cpus, 0.0) + float(passed[3])
            elif (sample := parse(line)) is not None:
                self.samples.append(sample)
        if not self.seconds:
            self.samples = []  # it was killed: nothing tells how much is missing

    def add(self, sample: Sample) -> None:
        """Keep one sample."""
        self.samples.append(sample)
        s = sample
        print(
            s.test, *s.cpus, s.path, s.shape, s.bytes, s.parameter, s.probe_before_ns,
            s.probe_after_ns, s.ns, s.second_ns, sep=",", file=self._file,
        )  # fmt: skip

    def passed(self, pair: Pair, seconds: float) -> None:
        """Note that a pair has been measured for so long."""
        a, b = pair.cpus
        self.seconds[a, b] = self.seconds.get((a, b), 0.0) + seconds
        print(f"# seconds {a},{b} {seconds:.1f}", file=self._file, flush=True)

    def close(self, remove: bool) -> None:
        """End; the file goes when what it was kept for is done."""
        self._file.close()
        if remove:
            self.path.unlink(missing_ok=True)


def measure(
    measuring: Measuring, partial: Partial, seconds: float, progress: Progress
) -> list[Sample]:
    """Measure each kind of pair for its share of the time, less what is there already."""
    pairs = pairs_of_each_kind(measuring.machine)
    if not pairs:
        raise CommandError(
            "two processors are needed to measure how messages travel between them, and one may "
            "be used here; the built-in thresholds stay"
        )
    share = seconds / len(pairs)
    seen = {"near": 0, "far": 0}
    for sample in partial.samples:
        distance = sample.distance(measuring.far_threshold_ns)
        if distance:
            seen[distance] += 1
    done = 0.0
    for pair in pairs:
        before = min(partial.seconds.get(pair.cpus, 0.0), share)
        done += before
        rest = share - before
        if rest < SHORTEST_RUN_SECONDS:
            continue

        def take(sample: Sample) -> None:
            partial.add(sample)
            distance = sample.distance(measuring.far_threshold_ns)
            if distance:
                seen[distance] += 1

        def tick(passed: float, done: float = done) -> None:
            progress.show(
                (done + passed) / seconds,
                f"{seen['near']} samples near, {seen['far']} far",
            )

        started = time.monotonic()
        try:
            arguments = ["pingpong", "--cpus", f"{pair.cpus[0]},{pair.cpus[1]}"]
            measuring.run(arguments, rest, take, tick)
        finally:
            partial.passed(pair, min(rest, time.monotonic() - started))
        done += rest
    progress.end()
    return partial.samples


def _kept(path: Path, fingerprint: str, distance: str) -> dict[str, str]:
    """Return the thresholds of a distance from an earlier calibration of the same machine."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return {}
    if f'fingerprint = "{fingerprint}"\n' not in text:
        return {}
    found = dict(re.findall(rf'^({distance}_\w+) = "(\w+)"$', text, re.MULTILINE))
    wanted = {f"{distance}_{name}" for name in thresholds.NAMES}
    return found if set(found) == wanted else {}


def render(
    fingerprint: str, derived: Mapping[str, thresholds.Derived], kept: Mapping[str, str]
) -> str:
    """Return the text of the calibration file."""
    values = {
        name: thresholds.size_text(value)
        for found in derived.values()
        for name, value in found.settings().items()
    }
    count = len(values) + len(kept)
    lines = [
        "# Written by `overdrive calibrate`. Settings of the environment and of other files",
        '# override it; `calibration = "off"` switches it off.',
        "",
        "[calibration]",
        f'fingerprint = "{fingerprint}"',
        f'date = "{time.strftime("%Y-%m-%d %H:%M")}"',
        f"thresholds = {count}",
        "",
        "[copy]",
        "# The smallest message that takes a way; 1T: none does.",
    ]
    for distance, found in derived.items():
        lines += ["", f"# {distance}: a cache line takes {found.line_ns:.0f} ns from core to core; "
                      f"{found.samples} samples"]  # fmt: skip
        lines += [f'{name} = "{values[name]}"' for name in found.settings()]
    if kept:
        lines += ["", "# From an earlier calibration of this machine."]
        lines += [f'{name} = "{value}"' for name, value in kept.items()]
    for distance, found in derived.items():
        for shape, title in SHAPE_TITLES.items():
            lines += ["", f"# {distance}, {title}: median of half a round trip in us; * is chosen"]
            lines += [f"# {line}" for line in thresholds.table(found, shape)]
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + f".{os.getpid()}")
    try:
        # Not writable for a group, whatever the umask: such a file would have no effect.
        with open(aside, "x", opener=lambda name, flags: os.open(name, flags, 0o644)) as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def summary(
    derived: Mapping[str, thresholds.Derived], kept: Sequence[str], path: Path
) -> list[str]:
    """Return what the user is told at the end."""
    lines = []
    for distance in ("near", "far"):
        found = derived.get(distance)
        if found is None:
            stays = "those of the earlier calibration stay" if distance in kept else (
                "the built-in values stay"
            )  # fmt: skip
            lines.append(f"{distance}: not seen often enough; {stays}")
            continue
        lines.append(
            f"{distance}: a cache line takes {found.line_ns:.0f} ns; the chosen paths are "
            f"{100 * (found.slowdown - 1):.1f} % slower than the best ones on average, "
            f"{100 * (found.worst - 1):.0f} % at worst"
        )
        for name, value in found.settings().items():
            text = "never" if value == thresholds.NEVER else thresholds.size_text(value)
            lines.append(f"  {name} = {text}")
    lines.append(f"written to {path}; `overdrive info` shows whether it is used")
    return lines


def parser() -> Parser:
    """Return what reads the options."""
    made = Parser(
        prog="overdrive calibrate",
        description="Measure this node and write the thresholds that later runs load.",
    )
    made.add_argument("--quick", action="store_true", help="20 seconds instead of two minutes")
    made.add_argument("--output", type=Path, metavar="FILE", help="instead of the user's file")
    made.add_argument("--samples", type=Path, metavar="FILE",
                        help="use these samples instead of measuring")  # fmt: skip
    made.add_argument("--save-samples", type=Path, metavar="FILE", help="keep the samples")
    made.add_argument("--hosts-launcher", default="", metavar="COMMAND",
                        help="measure where this command starts programs, such as 'ssh node7' or "
                             "'srun -N1 -n1'")  # fmt: skip
    return made


def run(installation: Installation, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Calibrate; return the exit status."""
    chosen = parser().parse_args(arguments)
    output: Path = chosen.output or standard_file(environment)
    measuring = Measuring(installation, environment, shlex.split(chosen.hosts_launcher))
    if chosen.samples is not None:
        samples = read_samples(chosen.samples)
    else:
        partial = _open_partial(output, measuring.fingerprint)
        seconds = QUICK_SECONDS if chosen.quick else SECONDS
        progress = Progress(seconds)
        try:
            samples = measure(measuring, partial, seconds, progress)
        except Stopped:
            progress.end()
            partial.close(remove=False)
            print(
                f"stopped; {len(partial.samples)} samples are kept in {partial.path}, and the next "
                f"`overdrive calibrate` goes on from there",
                file=sys.stderr,
            )
            return 130
        except BaseException:
            progress.end()
            partial.close(remove=False)
            raise
    derived = thresholds.derive(samples, measuring.far_threshold_ns)
    if not derived:
        raise CommandError(
            "no distance of cores was seen long enough to say anything: something else uses the "
            "processors; try again on a quiet machine"
        )
    kept: dict[str, str] = {}
    for distance in ("near", "far"):
        if distance not in derived:
            kept.update(_kept(output, measuring.fingerprint, distance))
    try:
        if chosen.save_samples is not None:
            write_samples(chosen.save_samples, samples)
        _write(output, render(measuring.fingerprint, derived, kept))
    except OSError as reason:
        raise CommandError(f"{reason.filename or output}: {reason.strerror}") from reason
    if chosen.samples is None:
        partial.close(remove=True)
    kept_distances = sorted({name.partition("_")[0] for name in kept})
    print("\n".join(summary(derived, kept_distances, output)))
    return 0


def _open_partial(output: Path, fingerprint: str) -> Partial:
    try:
        return Partial(output.with_name(output.name + ".partial"), fingerprint)
    except OSError as reason:
        raise CommandError(f"{reason.filename or output}: {reason.strerror}") from reason

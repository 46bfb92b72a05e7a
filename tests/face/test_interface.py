"""The interface text against the headers and libraries of the installed host MPIs."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import Host
from support.programs import ROOT

from face import headers

GENERATOR = ROOT / "src" / "face" / "generate.py"
_spec = importlib.util.spec_from_file_location("overdrive_generate", GENERATOR)
assert _spec and _spec.loader
generate = importlib.util.module_from_spec(_spec)
sys.modules["overdrive_generate"] = generate
_spec.loader.exec_module(generate)

pytestmark = [pytest.mark.quick, pytest.mark.everywhere]

FUNCTIONS = {f.name: f for f in generate.load_interface()}

# Callbacks that libraries export under MPI_ names; programs pass their address, nobody calls them.
PREDEFINED_CALLBACK = re.compile(
    r"MPI_(\w+_)?(NULL_COPY|NULL_DELETE|DUP)_FN|MPI_CONVERSION_FN_NULL"
)

# The host makes these requests itself; Start, Wait, Test and Request_free hand them on.
HOST_REQUEST = "the request is made by the host, and everything that completes it is ours"
HOST_USES_REQUEST = "partitioned requests are always the host's; it alone reads the handle"
REQUEST_TAKERS: dict[str, str] = {
    "Grequest_complete": "generalised requests are always the host's",
    "Parrived": HOST_USES_REQUEST,
    "Pready": HOST_USES_REQUEST,
    "Pready_list": HOST_USES_REQUEST,
    "Pready_range": HOST_USES_REQUEST,
    "Precv_init": HOST_REQUEST,
    "Psend_init": HOST_REQUEST,
    "Raccumulate": HOST_REQUEST,
    "Rget": HOST_REQUEST,
    "Rget_accumulate": HOST_REQUEST,
    "Rput": HOST_REQUEST,
}

# Communicators that cannot have local peers of ours: the other side is another program.
COMMUNICATOR_MAKERS: dict[str, str] = {
    "Comm_accept": "the other side is another job",
    "Comm_connect": "the other side is another job",
    "Comm_join": "the other side is another job",
    "Comm_spawn": "the other side is a new job",
    "Comm_spawn_multiple": "the other side is a new job",
    "Comm_get_parent": "returns one that exists already",
}


def stem(name: str) -> str:
    """Return the name without MPI_ and without the mark of the large form."""
    name = name.removeprefix("MPI_")
    return name.removesuffix("_c") if name.endswith("_c") else name


def test_every_declared_function_is_known(host: Host) -> None:
    found = headers.declared(host)
    assert len(found) > 350, f"only {len(found)} prototypes found in {host.include_dir}"
    assert sorted(set(found) - set(FUNCTIONS)) == []


def test_every_exported_function_is_known(host: Host) -> None:
    names = headers.exported(Path(host.lib_path))
    functions = {n for n in names if re.fullmatch(r"MPI_[A-Z][A-Za-z]*_?[a-z]\w*|MPI_T_\w+", n)}
    functions = {n for n in functions if not n.endswith("_F90")}
    assert len(functions) > 350
    unknown = {n for n in functions - set(FUNCTIONS) if not PREDEFINED_CALLBACK.fullmatch(n)}
    assert sorted(unknown) == []


def test_prototypes_are_those_of_the_header(host: Host, tmp_path: Path) -> None:
    names = set(headers.declared(host))
    source = tmp_path / "check.cc"
    source.write_text(generate.emit_check(list(FUNCTIONS.values()), names))
    assert source.read_text().count("static_assert") == len(names)
    command = ["g++", "-std=c++20", "-fsyntax-only", "-w", *headers.DEFINES]
    command += [*headers.NO_CXX_BINDINGS, f"-I{host.include_dir}"]
    command += [f"-DOD_CHECK_HEADER=<{headers.header_name(host)}>", str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[:4000]


def test_a_wrong_prototype_is_noticed(host: Host, tmp_path: Path) -> None:
    """The check of the prototypes can fail: one changed kind must not compile."""
    text = generate.INTERFACE_TEXT.read_text().replace(
        "int Comm_rank (COMM:comm INT*:rank)", "int Comm_rank (COMM:comm AINT*:rank)"
    )
    source = tmp_path / "check.cc"
    source.write_text(generate.emit_check(generate.parse_interface(text), {"MPI_Comm_rank"}))
    command = ["g++", "-std=c++20", "-fsyntax-only", "-w", *headers.NO_CXX_BINDINGS]
    command += [f"-I{host.include_dir}", f"-DOD_CHECK_HEADER=<{headers.header_name(host)}>"]
    result = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert "MPI_Comm_rank" in result.stderr and result.returncode != 0


def test_who_takes_a_request_is_ours(host: Host) -> None:
    """A request of ours in the hands of the host would crash it: nobody may be forgotten."""
    for name, prototype in headers.declared(host).items():
        if not prototype.mentions("MPI_Request", "MPI_Message"):
            continue
        function = FUNCTIONS[name]
        takes_request = r"const MPI_Request\b.*|MPI_Request \w+|MPI_Request \w*\[\]"
        makes_host_request = function.klass == "guarded" and not any(
            re.fullmatch(takes_request, a) for a in prototype.arguments
        )
        assert function.klass == "ours" or makes_host_request or stem(name) in REQUEST_TAKERS, (
            f"{name} is {function.klass}"
        )


def test_who_makes_a_communicator_is_ours(host: Host) -> None:
    for name, prototype in headers.declared(host).items():
        if prototype.writes("MPI_Comm"):
            known = FUNCTIONS[name].klass == "ours" or stem(name) in COMMUNICATOR_MAKERS
            assert known, f"{name} is {FUNCTIONS[name].klass}"


def test_exceptions_still_exist() -> None:
    """The lists of exceptions name functions which exist and are not ours."""
    for name in [*REQUEST_TAKERS, *COMMUNICATOR_MAKERS]:
        assert FUNCTIONS["MPI_" + name].klass != "ours", name


def test_large_forms_have_the_class_of_the_small() -> None:
    for name, function in FUNCTIONS.items():
        if name.endswith("_c") and name[:-2] in FUNCTIONS:
            assert function.klass == FUNCTIONS[name[:-2]].klass, name


def test_json_lists_every_function() -> None:
    command = [sys.executable, str(GENERATOR), "--what", "json"]
    listing = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert [f["name"] for f in listing["functions"]] == list(FUNCTIONS)

"""Tests of the generator: what it reads, what it refuses, what it writes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location(
    "overdrive_generate_unit", Path(__file__).with_name("generate.py")
)
assert _spec and _spec.loader
generate = importlib.util.module_from_spec(_spec)
sys.modules["overdrive_generate_unit"] = generate
_spec.loader.exec_module(generate)

SEND = (
    "int Send (CBUF:buf COUNT:count DATATYPE:datatype RANK:dest TAG:tag COMM:comm) [large] ours\n"
)
GATHERV = (
    "int Gatherv (CBUF:sendbuf COUNT:sendcount DATATYPE:sendtype BUF:recvbuf COUNT[]:recvcounts"
    " DISPL[]:displs DATATYPE:recvtype ROOT:root COMM:comm) [large] guarded:collective\n"
)
WTIME = "double Wtime () host\n"


def test_large_form_follows_the_plain_one():
    functions = generate.parse_interface("# comment\n\n" + WTIME + SEND)
    assert [f.name for f in functions] == ["MPI_Wtime", "MPI_Send", "MPI_Send_c"]
    assert [f.index for f in functions] == [0, 1, 2]
    assert functions[1].signature(opaque=False) == (
        "int(const void*, int, MPI_Datatype, int, int, MPI_Comm)"
    )
    assert functions[2].signature(opaque=False) == (
        "int(const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm)"
    )
    assert functions[0].signature(opaque=False) == "double(void)"


def test_calls_that_take_time_can_be_timed():
    functions = generate.load_interface()
    timed = {f.name for f in functions if generate.is_timed(f)}
    assert {"MPI_Send", "MPI_Recv_c", "MPI_Waitall", "MPI_Win_fence", "MPI_File_open"} <= timed
    assert {"MPI_Comm_split", "MPI_Iallreduce", "MPI_Barrier", "MPI_Test", "MPI_Iprobe"} <= timed
    for name in ("Wtime", "Init", "Finalize", "Comm_rank", "Comm_c2f", "Get_count", "Pcontrol"):
        assert f"MPI_{name}" not in timed
    text = generate.emit_face(generate.parse_interface(WTIME + SEND), "mpich")
    assert "CallTimer timer(idx::Send, __builtin_return_address(0));" in text
    assert "{idx::Send, reinterpret_cast<void*>(&Timed_Send)}," in text
    assert "Timed_Wtime" not in text


def test_sizes_of_arrays_grow_with_the_form():
    small, large = generate.parse_interface(GATHERV)
    assert "const int*, const int*" in small.signature(opaque=False)
    assert "const MPI_Count*, const MPI_Aint*" in large.signature(opaque=False)


@pytest.mark.parametrize(
    ("kind", "c_type", "opaque"),
    [
        ("REQUEST*", "MPI_Request*", "MPI_Request*"),
        ("REQUEST[w]", "MPI_Request*", "MPI_Request*"),
        ("REQUEST[]", "const MPI_Request*", "const MPI_Request*"),
        ("CSTATUS*", "const MPI_Status*", "const MPI_Status*"),
        ("CF08STATUS*", "const MPI_F08_status*", "const void*"),
        ("FN_COMM_COPY", "MPI_Comm_copy_attr_function*", "void*"),
        ("T_ENUM*", "MPI_T_enum*", "void**"),
        ("T_CB_SAFETY", "MPI_T_cb_safety", "int"),
        ("STR[][]", "char***", "char***"),
        ("INT[w]", "int*", "int*"),
        ("INT[]", "const int*", "const int*"),
    ],
)
def test_kinds(kind: str, c_type: str, opaque: str):
    argument = generate.Argument(kind, "x")
    assert argument.c_type(large=False) == c_type
    assert argument.c_type(large=False, opaque=True) == opaque


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("int Send\n", "line 1: not well formed"),
        (WTIME + "int Send (WHAT:x) host\n", "unknown kind 'WHAT'"),
        (WTIME + "int Send (INT:x) theirs\n", "line 2: unknown class"),
        ("int Send (INT:x) guarded:boredom\n", "unknown class"),
        ("int Send (INT:x) guarded\n", "unknown class"),
        ("int Send (INT:x) host:file\n", "unknown class"),
        (WTIME + WTIME, "line 2: Wtime occurs twice"),
        ("int Send (COUNT:x) host\n", "[large] does not fit"),
        ("int Send (INT:x) [large] host\n", "[large] does not fit"),
    ],
)
def test_mistakes_are_refused(text: str, complaint: str):
    with pytest.raises(generate.InterfaceError) as error:
        generate.parse_interface(text)
    assert complaint in str(error.value)


def test_hash_depends_on_names_and_order():
    hashes = {
        generate.interface_hash(generate.parse_interface(text))
        for text in (WTIME, SEND, WTIME + SEND, SEND + WTIME)
    }
    assert len(hashes) == 4
    # FNV-1a of the empty string, and of "a\n" as computed by hand from its definition.
    assert generate.interface_hash([]) == 0xCBF29CE484222325
    value = 0xCBF29CE484222325
    for byte in b"MPI_Wtime\n":
        value = (value ^ byte) * 0x100000001B3 % 2**64
    assert generate.interface_hash(generate.parse_interface(WTIME)) == value


def test_loader_list():
    functions = generate.parse_interface(WTIME + SEND)
    text = generate.emit_loader(functions)
    assert "OD_ENTRY(0, MPI_Wtime)\nOD_ENTRY(1, MPI_Send)\nOD_ENTRY(2, MPI_Send_c)\n" in text
    assert "#define OD_ENTRY_COUNT 3\n" in text


def test_face_takes_what_is_its_own():
    functions = generate.parse_interface(WTIME + SEND + GATHERV)
    text = generate.emit_face(functions, "mpich")
    for stem, taken in (("Send", "od_MPI_"), ("Send_c", "od_MPI_"), ("Gatherv", "Guard_")):
        assert f"{{idx::{stem}, reinterpret_cast<void*>(&{taken}{stem})}}," in text
    assert "HostCallScope scope(HostCallKind::kCollective);" in text
    assert "idx::Wtime," not in text
    assert "int od_MPI_Send_c(const void* buf, MPI_Count count, MPI_Datatype datatype" in text


def test_one_sided_calls_are_the_hosts_own():
    classes = {f.stem: f.klass for f in generate.load_interface()}
    calls = ("Put", "Get", "Accumulate", "Get_accumulate", "Fetch_and_op", "Compare_and_swap")
    assert {classes[name] for name in (*calls, "Rput", "Rget", "Raccumulate")} == {"host"}


def test_synchronisation_of_windows_is_marked():
    flush = [f for f in generate.load_interface() if f.stem == "Win_flush"]
    text = generate.emit_face(flush, "mpich")
    assert "return synchronising_host_call([&] { return OD_HOST(Win_flush)(rank, win); });" in text
    assert "if (is_at_rest()) [[likely]] return OD_HOST(Win_flush)(rank, win);" in text
    assert "HostCallScope scope" not in text


def test_functions_of_files_are_noted():
    functions = {f.stem: f for f in generate.load_interface() if f.guard is not None}
    opened = generate.emit_face([functions["File_open"]], "mpich")
    assert "  note_files();\n  HostCallScope scope" in opened
    assert "note_files" not in generate.emit_face([functions["Win_fence"]], "mpich")


@pytest.mark.parametrize("abi", generate.ABIS)
def test_each_function_has_one_place(abi: str):
    functions = generate.load_interface()
    text = generate.emit_face(functions, abi)
    for function in functions:
        assert f"  {function.stem} = {function.index},\n" in text
        taken = [
            text.count(
                f"{{idx::{function.stem}, reinterpret_cast<void*>(&{prefix}{function.stem})}}"
            )
            for prefix in ("od_MPI_", "Guard_", "Timed_")
        ]
        assert taken == [
            function.klass == "ours",
            function.klass == "guarded",
            generate.is_timed(function),
        ], function.name


def test_standard_abi_has_no_fortran_integer():
    functions = generate.load_interface()
    assert "MPI_Fint" in generate.emit_face(functions, "mpich")
    assert "MPI_Fint" not in generate.emit_face(functions, "mpiabi")


def test_check_covers_only_the_given_names():
    functions = generate.parse_interface(WTIME + SEND)
    text = generate.emit_check(functions, {"MPI_Send"})
    assert text.count("static_assert") == 1 and "decltype(MPI_Send)" in text


def test_unchanged_output_is_not_written_again(tmp_path: Path):
    output = tmp_path / "out.inc"
    generate.main(["--what", "loader", "--output", str(output)])
    before = output.stat().st_mtime_ns
    assert generate.main(["--what", "loader", "--output", str(output)]) == 0
    assert output.stat().st_mtime_ns == before


def test_command_line_reports_a_bad_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bad = tmp_path / "bad.txt"
    bad.write_text("int Send\n")
    assert generate.main(["--what", "loader", "--interface", str(bad)]) == 1
    assert "line 1" in capsys.readouterr().err

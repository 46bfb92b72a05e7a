#!/usr/bin/env python3
"""Makes the generated parts of loader and faces from the interface text.

    generate.py --what loader                 loader_entries.inc: numbers, names and entry points
    generate.py --what face --abi mpich       face_entries.inc: types, prototypes, guards, table
    generate.py --what json                   the functions and their classes for tools and manuals
    generate.py --what check --names a,b,...  C++ that compiles only if mpi.h declares those alike

The text's own comment describes its format. Function numbers are positions in the expanded list
(NAME, then NAME_c where there is one); `interface_hash` is the FNV-1a hash of the names in that
order, so a loader and a face that were made from different texts recognise each other.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path

INTERFACE_TEXT = Path(__file__).with_name("mpi_interface.txt")
ABIS = ("openmpi", "mpich", "mpiabi")
CLASSES = ("host", "guarded", "ours")
GUARD_KINDS = ("collective", "collective_start", "rma_sync", "file", "process")

# Base kinds, which may be followed by *, [] or [w], and their C types.
_HANDLES = {
    "COMM": "MPI_Comm",
    "DATATYPE": "MPI_Datatype",
    "GROUP": "MPI_Group",
    "OP": "MPI_Op",
    "INFO": "MPI_Info",
    "WIN": "MPI_Win",
    "FILE": "MPI_File",
    "ERRHANDLER": "MPI_Errhandler",
    "SESSION": "MPI_Session",
    "REQUEST": "MPI_Request",
    "MESSAGE": "MPI_Message",
}
_SCALARS = {
    "INT": "int",
    "RANK": "int",
    "ROOT": "int",
    "TAG": "int",
    "KEYVAL": "int",
    "FLAG": "int",
    "AINT": "MPI_Aint",
    "OFFSET": "MPI_Offset",
    "FINT": "MPI_Fint",
    "LARGE": "MPI_Count",
    "STATUS": "MPI_Status",
    "F08STATUS": "MPI_F08_status",
}
# Kinds whose type differs between the plain and the large form.
_SIZED = {
    "COUNT": ("int", "MPI_Count"),
    "DISPL": ("int", "MPI_Aint"),
    "DISPUNIT": ("int", "MPI_Aint"),
    "BYTES": ("MPI_Aint", "MPI_Count"),
}
_WHOLE = {
    "BUF": "void*",
    "CBUF": "const void*",
    "PTR": "void*",
    "CPTR": "const void*",
    "STR": "char*",
    "CSTR": "const char*",
    "STR[]": "char**",
    "STR[][]": "char***",
    "RANGE[w]": "int (*)[3]",
    "VARARGS": "...",
    "CSTATUS*": "const MPI_Status*",
    "CF08STATUS*": "const MPI_F08_status*",
}
_FUNCTIONS = {
    "FN_USER": ("MPI_User_function*", "MPI_User_function_c*"),
    "FN_DATAREP": ("MPI_Datarep_conversion_function*", "MPI_Datarep_conversion_function_c*"),
    "FN_DATAREP_EXTENT": ("MPI_Datarep_extent_function*",) * 2,
    "FN_COMM_ERR": ("MPI_Comm_errhandler_function*",) * 2,
    "FN_FILE_ERR": ("MPI_File_errhandler_function*",) * 2,
    "FN_WIN_ERR": ("MPI_Win_errhandler_function*",) * 2,
    "FN_SESSION_ERR": ("MPI_Session_errhandler_function*",) * 2,
    "FN_COMM_COPY": ("MPI_Comm_copy_attr_function*",) * 2,
    "FN_COMM_DELETE": ("MPI_Comm_delete_attr_function*",) * 2,
    "FN_TYPE_COPY": ("MPI_Type_copy_attr_function*",) * 2,
    "FN_TYPE_DELETE": ("MPI_Type_delete_attr_function*",) * 2,
    "FN_WIN_COPY": ("MPI_Win_copy_attr_function*",) * 2,
    "FN_WIN_DELETE": ("MPI_Win_delete_attr_function*",) * 2,
    "FN_COPY": ("MPI_Copy_function*",) * 2,
    "FN_DELETE": ("MPI_Delete_function*",) * 2,
    "FN_GREQ_QUERY": ("MPI_Grequest_query_function*",) * 2,
    "FN_GREQ_FREE": ("MPI_Grequest_free_function*",) * 2,
    "FN_GREQ_CANCEL": ("MPI_Grequest_cancel_function*",) * 2,
}
# Enumerations of the tool interface are ints in every ABI; its other types are pointers.
_TOOL_ENUMS = ("T_CB_SAFETY", "T_SOURCE_ORDER")


class InterfaceError(ValueError):
    """The interface text is not well formed."""


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument of a function: its kind and its name."""

    kind: str
    name: str

    def c_type(self, large: bool, opaque: bool = False) -> str:
        """The C type; with `opaque`, types that older headers lack become equivalent plain ones."""
        kind = self.kind
        if kind in _FUNCTIONS:
            return "void*" if opaque else _FUNCTIONS[kind][large]
        if opaque and kind in ("F08STATUS*", "CF08STATUS*"):
            return "void*" if kind == "F08STATUS*" else "const void*"
        if kind in _WHOLE:
            return _WHOLE[kind]
        match = re.fullmatch(r"([A-Z0-9_]+?)(\*|\[\]|\[w\])?", kind)
        if not match:
            raise InterfaceError(f"kind {kind!r} is not well formed")
        base, suffix = match.groups()
        if base.startswith("T_"):
            c_type = "MPI_T_" + base[2:].lower()
            if opaque:
                c_type = "int" if base in _TOOL_ENUMS else "void*"
        elif base in _SIZED:
            c_type = _SIZED[base][large]
        elif base in _HANDLES:
            c_type = _HANDLES[base]
        elif base in _SCALARS:
            c_type = _SCALARS[base]
        else:
            raise InterfaceError(f"unknown kind {kind!r}")
        if suffix == "[]":
            return f"const {c_type}*"
        return c_type + ("*" if suffix else "")

    def declare(self, large: bool) -> str:
        """The argument as it stands in a prototype of a face."""
        c_type = self.c_type(large, opaque=True)
        if c_type == "...":
            return c_type
        if "(*)" in c_type:
            return c_type.replace("(*)", f"(*{self.name})")
        return f"{c_type} {self.name}"


@dataclasses.dataclass(frozen=True)
class Function:
    """One entry point, either the plain or the large form of a line of the text."""

    index: int
    stem: str  # without MPI_
    result: str
    arguments: tuple[Argument, ...]
    large: bool
    klass: str
    guard: str | None

    @property
    def name(self) -> str:
        """The C name."""
        return "MPI_" + self.stem

    def result_type(self) -> str:
        """The C type of the result."""
        if self.result in ("int", "double"):
            return self.result
        return Argument(self.result, "").c_type(False)

    def signature(self, opaque: bool) -> str:
        """The function type, in C."""
        types = ", ".join(a.c_type(self.large, opaque) for a in self.arguments)
        return f"{self.result_type()}({types or 'void'})"

    def prototype(self, prefix: str) -> str:
        """A prototype for faces, named prefix + MPI_X."""
        arguments = ", ".join(a.declare(self.large) for a in self.arguments)
        return f"{self.result_type()} {prefix}{self.name}({arguments or 'void'})"


_LINE = re.compile(r"(\w+) (\w+) \(([^)]*)\) (\[large\] )?(\w+)(?::(\w+))?")


def parse_interface(text: str) -> list[Function]:
    """Reads the interface text into the expanded list of functions."""
    functions: list[Function] = []
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if not match:
            raise InterfaceError(f"line {number}: not well formed: {line}")
        result, stem, argument_text, large, klass, guard = match.groups()
        if klass not in CLASSES or (klass == "guarded") != (guard in GUARD_KINDS):
            raise InterfaceError(f"line {number}: unknown class {klass}:{guard}")
        arguments = []
        for item in argument_text.split():
            kind, _, name = item.partition(":")
            argument = Argument(kind, name)
            argument.c_type(False)  # reports an unknown kind here, with its line
            arguments.append(argument)
        sizes = [a for a in arguments if a.c_type(False) != a.c_type(True)]
        if bool(large) != bool(sizes) and not stem.endswith("_c"):
            raise InterfaceError(f"line {number}: [large] does not fit the kinds of {stem}")
        forms = [(stem, False)] + ([(stem + "_c", True)] if large else [])
        for name, is_large in forms:
            if name in seen:
                raise InterfaceError(f"line {number}: {name} occurs twice")
            seen.add(name)
            functions.append(
                Function(len(functions), name, result, tuple(arguments), is_large, klass, guard)
            )
    return functions


def load_interface(path: Path = INTERFACE_TEXT) -> list[Function]:
    """Reads the interface text of this source tree."""
    return parse_interface(path.read_text(encoding="utf-8"))


def interface_hash(functions: list[Function]) -> int:
    """FNV-1a, 64 bits, over the names with a newline after each."""
    value = 0xCBF29CE484222325
    for byte in "".join(f.name + "\n" for f in functions).encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def emit_loader(functions: list[Function]) -> str:
    """loader_entries.inc: an OD_ENTRY(number, name) list and what belongs to it."""
    lines = [
        "// Made by generate.py from mpi_interface.txt; do not edit.",
        "// OD_ENTRY(number, MPI name) is expanded once per function, in order.",
        "#ifdef OD_ENTRY",
        *(f"OD_ENTRY({f.index}, {f.name})" for f in functions),
        "#undef OD_ENTRY",
        "#else",
        f"#define OD_ENTRY_COUNT {len(functions)}",
        f"#define OD_INTERFACE_HASH 0x{interface_hash(functions):016x}ull",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


# What headers older than the newest of their family do not declare although a prototype needs it.
_FALLBACK_TYPES = {
    "openmpi": """\
#if OMPI_MAJOR_VERSION < 5
typedef struct ompi_instance_t* MPI_Session;
#endif
""",
    "mpich": """\
#if MPI_VERSION < 4
typedef int MPI_Session;
#endif
""",
    "mpiabi": "",
}


def _spell(text: str, abi: str) -> str:
    # The standard ABI's header has no MPI_Fint; its Fortran integer is a C int.
    return text.replace("MPI_Fint", "int") if abi == "mpiabi" else text


_SIMPLY = "defined(__OPTIMIZE__) && defined(__GNUC__) && !defined(__clang__)"


def emit_face(functions: list[Function], abi: str) -> str:
    """face_entries.inc: declarations, and the table where OD_FACE_DEFINE_TABLE is defined."""
    out = [
        "// Made by generate.py from mpi_interface.txt; do not edit.",
        f"// Entry points of the {abi} face; to be included after mpi.h and host_call_scope.h.",
        "// One translation unit defines OD_FACE_DEFINE_TABLE before it and gets the table too.",
        "",
        "#ifndef OD_FACE_ENTRIES_DECLARED",
        "#define OD_FACE_ENTRIES_DECLARED",
        "",
        _FALLBACK_TYPES[abi],
        f"#define OD_ENTRY_COUNT {len(functions)}",
        f"#define OD_INTERFACE_HASH 0x{interface_hash(functions):016x}ull",
        "",
        "namespace od::face {",
        "",
        "// The host's functions by number, filled when the face is bound.",
        "extern void* host_table[OD_ENTRY_COUNT];",
        "",
        "namespace idx {",
        "enum Index : unsigned {",
        *(f"  {f.stem} = {f.index}," for f in functions),
        "};",
        "}  // namespace idx",
        "",
        "namespace fn {",
        *(_spell(f"using {f.stem} = {f.signature(opaque=True)};", abi) for f in functions),
        "}  // namespace fn",
        "",
        "}  // namespace od::face",
        "",
        "// OD_HOST(Send)(buf, ...) calls the host's own MPI_Send; OD_HOST_HAS(Send): has it one?",
        "#define OD_HOST(stem) \\",
        "  (reinterpret_cast<::od::face::fn::stem*>( \\",
        "      ::od::face::host_table[::od::face::idx::stem]))",
        "#define OD_HOST_HAS(stem) (::od::face::host_table[::od::face::idx::stem] != nullptr)",
        "",
        '// Implemented by hand. extern "C", hidden: the loader reaches them through the table.',
        'extern "C" {',
        *(_spell(f.prototype("od_") + ";", abi) for f in functions if f.klass == "ours"),
        '}  // extern "C"',
        "",
        "#endif  // OD_FACE_ENTRIES_DECLARED",
        "",
        "#ifdef OD_FACE_DEFINE_TABLE",
        "",
        "namespace od::face {",
        "",
        "void* host_table[OD_ENTRY_COUNT];",
        "",
        "namespace {",
        "",
    ]
    for function in functions:
        if function.klass == "guarded":
            out += _emit_guard(function, abi)
    out += [
        "// What the wrappers below call: the entries as they are without them.",
        "void* timed_next[OD_ENTRY_COUNT];",
        "",
        "// More than -O1 does nothing for functions that hand on their arguments, and takes the",
        "// compiler twice as long for all of them.",
        f"#if {_SIMPLY}",
        "#pragma GCC push_options",
        '#pragma GCC optimize("O1")',
        "#endif",
        "",
    ]
    for function in functions:
        if is_timed(function):
            out += _emit_timed(function, abi)
    prefixes = {"ours": "od_MPI_", "guarded": "Guard_"}
    out += [
        f"#if {_SIMPLY}",
        "#pragma GCC pop_options",
        "#endif",
        "",
        "// Tables, not code: a statement for every function takes the compiler seconds.",
        "struct Entry {",
        "  idx::Index index;",
        "  void* function;",
        "};",
        "",
        "const Entry kEntries[] = {",
        *(_emit_entry(f, prefixes[f.klass]) for f in functions if f.klass in prefixes),
        "};",
        "",
        "const Entry kTimedEntries[] = {",
        *(_emit_entry(f, "Timed_") for f in functions if is_timed(f)),
        "};",
        "",
        "}  // namespace",
        "",
        "// Puts the face's functions into `entries`, except where the host has no such function.",
        "void FillEntries(void** entries, void* const* host) {",
        "  for (unsigned i = 0; i < OD_ENTRY_COUNT; ++i) host_table[i] = host[i];",
        "  for (const Entry& each : kEntries) {",
        "    if (host[each.index] != nullptr) entries[each.index] = each.function;",
        "  }",
        "}",
        "",
        "// Puts a clock before every entry that is there and may take time.",
        "void TimeEntries(void** entries) {",
        "  for (const Entry& each : kTimedEntries) {",
        "    if (entries[each.index] == nullptr) continue;",
        "    timed_next[each.index] = entries[each.index];",
        "    entries[each.index] = each.function;",
        "  }",
        "}",
        "",
        "}  // namespace od::face",
        "",
        "#endif  // OD_FACE_DEFINE_TABLE",
    ]
    return "\n".join(out) + "\n"


def _emit_entry(function: Function, prefix: str) -> str:
    return f"    {{idx::{function.stem}, reinterpret_cast<void*>(&{prefix}{function.stem})}},"


# Functions that only look something up or convert it: a clock before them would cost more than they
# do. MPI_Init begins and MPI_Finalize ends what is timed.
_NOT_TIMED = re.compile(
    r"T_.*|W(time|tick)|Pcontrol|Init(_thread)?|Finalize|Abort|Initialized|Finalized|Aint_.*|Address"
    r"|.*_(c2f|f2c|c2f08|f082c|f082f|f2f08|toint|fromint)|Status_.*|Abi_.*|Is_thread_main"
    r"|Query_thread|Get_(address|count|elements|elements_x|version|library_version|processor_name)"
    r"(_c)?|Error_.*|Comm_(rank|size|test_inter)|Group_(rank|size)|Type_(size|extent|lb|ub)(_x|_c)?"
    r"|Type_get_(extent|true_extent)(_x|_c)?"
)


def is_timed(function: Function) -> bool:
    """Whether calls of this function are timed where statistics are asked for."""
    return (
        function.result == "int"
        and all(argument.kind != "VARARGS" for argument in function.arguments)
        and not _NOT_TIMED.fullmatch(function.stem)
    )


# Calls of which a record tells how much they move (face/payload.h): messages, and collectives with
# the side whose count matters on every rank.
_MESSAGES = re.compile(r"I?(b|s|r)?send(recv)?(_replace)?|Sendrecv(_replace)?", re.IGNORECASE)
_RECEIVES = re.compile(r"I?m?recv", re.IGNORECASE)
_ONE_COUNT = re.compile(
    r"I?(bcast|allreduce|reduce|scan|exscan|reduce_scatter_block)", re.IGNORECASE
)
_BY_SEND = re.compile(r"I?(neighbor_)?(allgatherv?|gatherv?|alltoall)", re.IGNORECASE)
_BY_RECEIVE = re.compile(r"I?scatterv?", re.IGNORECASE)
_ONE_SIDED = re.compile(r"R?(put|get|accumulate)", re.IGNORECASE)


def _emit_payload(function: Function) -> list[str]:
    """Lines that tell the timer of a call what it moves, or none."""
    stem = function.stem.removesuffix("_c")
    kinds = {argument.name: argument.kind for argument in function.arguments}
    names = [argument.name for argument in function.arguments]

    def first(kind: str) -> str:
        return next(name for name in names if kinds[name] == kind)

    def side(which: str) -> str:
        return f"payload({which}count, {which}type)"

    if _MESSAGES.fullmatch(stem):
        value = f"payload_to({first('COUNT')}, {first('DATATYPE')}, dest, {first('COMM')})"
    elif _RECEIVES.fullmatch(stem) or _ONE_COUNT.fullmatch(stem) or _ONE_SIDED.fullmatch(stem):
        value = f"payload({first('COUNT')}, {first('DATATYPE')})"
    elif _BY_SEND.fullmatch(stem):
        other = side("recv") if kinds.get("recvcount") == "COUNT" else "observe::Payload{}"
        value = f"sendbuf == MPI_IN_PLACE ? {other} : {side('send')}"
    elif _BY_RECEIVE.fullmatch(stem):
        other = side("send") if kinds.get("sendcount") == "COUNT" else "observe::Payload{}"
        value = f"recvbuf == MPI_IN_PLACE ? {other} : {side('recv')}"
    else:
        return []
    # At other values of the root, of inter-communicators, arguments are not significant.
    root = " && root >= 0" if "root" in names else ""
    return [f"  if (observe::is_recording(){root}) timer.set_payload({value});"]


# Calls to which ranks of a communicator come together: all that are started when they are called.
_ARRIVALS = re.compile(
    r"I?(barrier|bcast|(all)?reduce|reduce_scatter(_block)?|scan|exscan|(all)?gatherv?|scatterv?"
    r"|alltoall[vw]?)",
    re.IGNORECASE,
)


def _emit_arrival(function: Function) -> list[str]:
    """Line that notes when this rank came, or none."""
    stem = function.stem.removesuffix("_c")
    if not _ARRIVALS.fullmatch(stem):
        return []
    blocks = "false" if any(a.name == "request" for a in function.arguments) else "true"
    return [f"  note_arrival(comm, {blocks}, timer);"]


def _emit_timed(function: Function, abi: str) -> list[str]:
    arguments = ", ".join(a.declare(function.large) for a in function.arguments)
    names = ", ".join(a.name for a in function.arguments)
    stem = function.stem
    head = f"{function.result_type()} Timed_{stem}({arguments or 'void'}) {{"
    return [
        _spell(head, abi),
        f"  const auto next = reinterpret_cast<fn::{stem}*>(timed_next[idx::{stem}]);",
        f"  if (inside_timed_call() || InHostCall()) return next({names});",
        f"  CallTimer timer(idx::{stem}, __builtin_return_address(0));",
        *_emit_arrival(function),
        *_emit_payload(function),
        f"  return next({names});",
        "}",
        "",
    ]


def _emit_guard(function: Function, abi: str) -> list[str]:
    camel = "".join(part.capitalize() for part in (function.guard or "").split("_"))
    arguments = ", ".join(a.declare(function.large) for a in function.arguments)
    names = ", ".join(a.name for a in function.arguments)
    head = f"{function.result_type()} Guard_{function.stem}({arguments or 'void'}) {{"
    if function.guard == "rma_sync":
        call = f"OD_HOST({function.stem})({names})"
        return [
            _spell(f"__attribute__((noinline)) {head.replace('Guard_', 'Prepared_')}", abi),
            f"  return synchronising_host_call([&] {{ return {call}; }});",
            "}",
            _spell(head, abi),
            f"  if (is_at_rest()) [[likely]] return {call};",
            f"  return Prepared_{function.stem}({names});",
            "}",
            "",
        ]
    note = ["  note_files();"]
    return [
        _spell(head, abi),
        *(note if function.guard == "file" else []),
        f"  HostCallScope scope(HostCallKind::k{camel});",
        f"  return OD_HOST({function.stem})({names});",
        "}",
        "",
    ]


def emit_json(functions: list[Function]) -> str:
    """A list for tools: name, class, reason of a guard, whether it is a large form."""
    rows = [
        {
            "index": f.index,
            "name": f.name,
            "class": f.klass,
            "guard": f.guard,
            "large": f.large,
            "arguments": [{"kind": a.kind, "name": a.name} for a in f.arguments],
        }
        for f in functions
    ]
    return json.dumps({"hash": f"{interface_hash(functions):016x}", "functions": rows}, indent=1)


# Functions whose headers disagree about const in one argument, or about the name of the callback's
# type, although the binary interface is the same: compared after those differences are taken away.
LOOSE = frozenset(
    {
        "MPI_Pready_list",
        "MPI_Request_get_status_all",
        "MPI_Request_get_status_any",
        "MPI_Request_get_status_some",
        "MPI_Status_get_error",
        "MPI_Status_get_source",
        "MPI_Status_get_tag",
        "MPI_Errhandler_create",
    }
)

_CHECK_HEAD = """\
// Made by generate.py: compiles only if the header declares these functions as the text says.
#include OD_CHECK_HEADER
#include <type_traits>

template <typename T>
struct Bare {
  using type = T;
};
template <typename T>
struct Bare<const T*> {
  using type = T*;
};
template <typename F>
struct BareFunction;
template <typename R, typename... A>
struct BareFunction<R(A...)> {
  using type = R(typename Bare<A>::type...);
};
"""


def emit_check(functions: list[Function], names: set[str]) -> str:
    """static_asserts that the header's declaration of each of `names` is the text's."""
    lines = [_CHECK_HEAD]
    for function in functions:
        if function.name not in names:
            continue
        declared, wanted = f"decltype({function.name})", function.signature(opaque=False)
        lines.append(f"#undef {function.name}")
        if function.name in LOOSE:
            declared = f"BareFunction<{declared}>::type"
            wanted = f"BareFunction<{wanted}>::type"
        lines.append(f'static_assert(std::is_same_v<{declared}, {wanted}>, "{function.name}");')
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Command line; see the module's comment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", choices=("loader", "face", "json", "check"), required=True)
    parser.add_argument("--abi", choices=ABIS)
    parser.add_argument("--names", default="", help="for check: comma-separated function names")
    parser.add_argument("--interface", type=Path, default=INTERFACE_TEXT)
    parser.add_argument("--output", "-o", type=Path, help="default: standard output")
    options = parser.parse_args(argv)
    try:
        functions = load_interface(options.interface)
    except InterfaceError as error:
        print(f"{options.interface}: {error}", file=sys.stderr)
        return 1
    if options.what == "loader":
        text = emit_loader(functions)
    elif options.what == "json":
        text = emit_json(functions) + "\n"
    elif options.what == "check":
        text = emit_check(functions, set(options.names.split(",")))
    else:
        if not options.abi:
            parser.error("--what face needs --abi")
        text = emit_face(functions, options.abi)
    if options.output:
        # Unchanged output keeps its time stamp, so that nothing is compiled again for nothing.
        if not options.output.exists() or options.output.read_text(encoding="utf-8") != text:
            options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

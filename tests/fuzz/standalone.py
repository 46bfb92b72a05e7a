"""Prints a program as a C file of its own: calls in order, each under the ranks that make it.

What was found wrong is checked for messages (length, source, every byte) and for reductions with
predefined operations; other results are left to the interpreter, which a comment says.
"""

from __future__ import annotations

from typing import Any

from fuzz.analysis import settle
from fuzz.datatypes import Type, parse
from fuzz.program import Op, Program

MPI_TYPES = {
    "c": "MPI_SIGNED_CHAR", "s": "MPI_SHORT", "i": "MPI_INT", "l": "MPI_LONG", "u": "MPI_UNSIGNED",
    "U": "MPI_UNSIGNED_LONG", "f": "MPI_FLOAT", "d": "MPI_DOUBLE", "b": "MPI_BYTE",
}  # fmt: skip
C_TYPES = {
    "c": "signed char", "s": "short", "i": "int", "l": "long", "u": "unsigned",
    "U": "unsigned long", "f": "float", "d": "double", "b": "unsigned char",
}  # fmt: skip
MODES = {"std": "", "buf": "b", "sync": "s", "rdy": "r"}

HEAD = """#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, flag, count, index_;
static MPI_Request q[512];
static MPI_Comm c[128];
static MPI_Status st[512];
static MPI_Message message;

// A buffer that nothing else uses, filled with bytes that follow from a message's number.
static void* filled(long bytes, int number) {
  unsigned char* p = malloc(bytes + 1);
  for (long i = 0; i < bytes; i++) p[i] = (unsigned char)(number * 37 + i);
  return p;
}

static void expect(const void* p, long bytes, int number, const char* what) {
  for (long i = 0; i < bytes; i++) {
    if (((const unsigned char*)p)[i] == (unsigned char)(number * 37 + i)) continue;
    printf("rank %d: %s: byte %ld is not message %d's\\n", rank, what, i, number);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static void chain(void* in, void* inout, int* n, MPI_Datatype* type) {
  long *a = in, *b = inout;
  MPI_Aint lower, extent;
  MPI_Type_get_extent(*type, &lower, &extent);
  for (int i = 0; i < *n; i++, a += extent / 8, b += extent / 8) {
    b[1] = (a[1] * b[0] + b[1]) % 1000003;
    b[0] = a[0] * b[0] % 1000003;
  }
}

static void add(void* in, void* inout, int* n, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *n; i++) ((long*)inout)[i] += ((long*)in)[i];
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Buffer_attach(malloc(1 << 26), 1 << 26);
  c[0] = MPI_COMM_WORLD;
  // What windows have started is left out, not its completion.
  for (int i = 0; i < 512; i++) q[i] = MPI_REQUEST_NULL;
"""

TAIL = """  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("passed\\n");
  MPI_Finalize();
  return 0;
}
"""


class Printer:
    """Collects the lines of a program."""

    def __init__(self, program: Program) -> None:
        self.program, analysis = settle(program)
        self.lengths = {
            send.message.number: (send.message.n, send.op.args["type"]) for send in analysis.sends
        }
        # What a persistent request sends has one content for all rounds.
        self.own_content = {
            send.message.number for send in analysis.sends if send.op.verb != "sinit"
        }
        self.types: dict[str, str] = {}
        self.receives: dict[tuple[int, int], Op] = {}
        self.body: list[str] = []

    def type_of(self, spec: str) -> str:
        """Return the C expression of a datatype, made at the beginning of the program."""
        if len(spec) == 1:
            return MPI_TYPES[spec]
        return self.types.setdefault(spec, f"t{len(self.types)}")

    def make_types(self) -> list[str]:
        """Return the lines that make all derived datatypes."""
        lines = []
        for spec, name in self.types.items():
            kind, n = parse(spec)
            base, size = MPI_TYPES[spec[0]], f"(int)sizeof({C_TYPES[spec[0]]})"
            lines.append(f"  MPI_Datatype {name};  // {spec}")
            if kind == "c":
                lines.append(f"  MPI_Type_contiguous({n[0]}, {base}, &{name});")
            elif kind == "v":
                lines.append(f"  MPI_Type_vector({n[0]}, {n[1]}, {n[2]}, {base}, &{name});")
            elif kind == "r":
                lines.append(f"  MPI_Type_contiguous({n[0]}, {base}, &{name});")
                extent = f"{n[0] + n[1]} * {size}"
                lines.append(f"  MPI_Type_create_resized({name}, 0, {extent}, &{name});")
            else:
                per = Type(spec).per
                # Gaps of one and two elements in turn stand for irregular ones.
                place = {"w": f"{per - 1} - i", "n": f"i - {per // 2}"}.get(kind, "2 * i + i / 2")
                lines.append(f"  int* d_{name} = malloc({per} * sizeof(int));")
                lines.append(f"  for (int i = 0; i < {per}; i++) d_{name}[i] = {place};")
                call = f"MPI_Type_create_indexed_block({per}, 1, d_{name}, {base}, &{name})"
                lines.append(f"  {call};")
            lines.append(f"  MPI_Type_commit(&{name});")
        return lines

    def packed(self, spec: str, n: int) -> int:
        """Return the bytes that a buffer needs, generously, and the same for all kinds."""
        size = {"c": 1, "b": 1, "s": 2, "i": 4, "u": 4, "f": 4}.get(spec[0], 8)
        return size * (n + Type(spec).per) * 8 if len(spec) > 1 else size * n

    def emit(self, op: Op, *lines: str) -> None:
        """Put lines under the ranks that execute them."""
        if len(op.ranks) == self.program.ranks:
            self.body += [f"  {line}" for line in lines]
            return
        who = " || ".join(f"rank == {rank}" for rank in op.ranks)
        self.body += [f"  if ({who}) {{  // step {op.step}", *(f"    {x}" for x in lines), "  }"]

    # --- messages ----------------------------------------------------------------------------

    def send_call(self, op: Op, message: int, name: str, request: str) -> str:
        """Return a call that sends."""
        spec, n = op.args["type"], op.args["n"]
        count = n // Type(spec).per
        buffer = self.send_buffer(spec, n, message)
        call = f"{name}({buffer}, {count}, {self.type_of(spec)}, {op.args['to']}, {op.args['tag']}"
        return f"{call}, c[{op.args['c']}]{request});"

    def send_buffer(self, spec: str, n: int, message: int) -> str:
        """Return an expression for a buffer with a message."""
        return f"filled({max(1, self.packed(spec, n))}, {message}) + {self.shift(spec)}"

    def shift(self, spec: str) -> int:
        """Return how far the address lies behind the first byte that is used."""
        kind, n = parse(spec)
        return n[0] // 2 * (self.packed(spec[0], 1)) if kind == "n" else 0

    def on_send(self, op: Op) -> None:
        """MPI_Send and its relatives."""
        mode = MODES[op.args["mode"]]
        if op.verb == "sinit":
            # One content for all rounds: what is checked is the length.
            name = f"MPI_{mode.upper()}send_init" if mode else "MPI_Send_init"
            self.emit(op, self.send_call(op, 0, name, f", &q[{op.args['q']}]"))
        elif op.get("q") is None:
            name = f"MPI_{mode.upper()}send" if mode else "MPI_Send"
            self.emit(op, self.send_call(op, op.args["m"], name, ""))
        else:
            name = f"MPI_I{mode}send"
            self.emit(op, self.send_call(op, op.args["m"], name, f", &q[{op.args['q']}]"))

    def envelope(self, op: Op, tag: str = "tag") -> tuple[str, str]:
        """Return source and tag of a receive."""
        source = "MPI_ANY_SOURCE" if op.args["from"] == "any" else str(op.args["from"])
        return source, "MPI_ANY_TAG" if op.args[tag] == "any" else str(op.args[tag])

    def on_recv(self, op: Op) -> None:
        """MPI_Recv and its relatives."""
        spec, n = op.args["type"], op.args["n"]
        source, tag = self.envelope(op)
        comm, kind = f"c[{op.args['c']}]", self.type_of(spec)
        count = -(-n // Type(spec).per)
        name = f"b{op.step}_{op.ranks[0]}"
        bytes_ = max(1, self.packed(spec, n))
        lines = [f"{name} = filled({bytes_}, 99);"]
        self.types_of_buffers.append(f"  static char* {name};")
        address = f"{name} + {self.shift(spec)}"
        how = op.get("how", "plain")
        if how in ("probe", "iprobe"):
            lines.append(f"MPI_Probe({source}, {tag}, {comm}, st);  // {how}")
            source, tag = "st->MPI_SOURCE", "st->MPI_TAG"
        elif how in ("mprobe", "improbe"):
            lines.append(f"MPI_Mprobe({source}, {tag}, {comm}, &message, st);  // {how}")
        matched = how in ("mprobe", "improbe")
        where = "&message" if matched else f"{source}, {tag}, {comm}"
        request = op.get("q")
        letter = "M" if matched else ""
        if op.verb == "rinit":
            call = f"MPI_Recv_init({address}, {count}, {kind}, {where}, &q[{request}]);"
        elif request is not None:
            function = f"MPI_I{letter.lower()}recv"
            call = f"{function}({address}, {count}, {kind}, {where}, &q[{request}]);"
        else:
            function = f"MPI_{letter}recv" if letter else "MPI_Recv"
            call = f"{function}({address}, {count}, {kind}, {where}, st);"
        self.emit(op, *lines, call)
        if request is None:
            self.check(op, op, "st[0]", op.args.get("cand", []))
        else:
            self.receives[op.ranks[0], request] = op

    def check(self, at: Op, op: Op, status: str, candidates: list[int]) -> None:
        """Check what a receive without choice has received."""
        if len(candidates) != 1:
            return
        n, sent = self.lengths[candidates[0]]
        spec = op.args["type"]
        self.emit(
            at,
            f"MPI_Get_elements(&{status}, {self.type_of(spec)}, &count);",
            f'if (count != {n}) printf("rank %d: %d elements, not {n}\\n", rank, count);',
        )
        known = candidates[0] in self.own_content
        if known and len(spec) == len(sent) == 1 and op.verb == "recv":
            name = f"b{op.step}_{op.ranks[0]}"
            self.emit(
                at, f'expect({name}, {self.packed(spec, n)}, {candidates[0]}, "step {at.step}");'
            )

    def on_exch(self, op: Op) -> None:
        """MPI_Sendrecv."""
        spec, n, rspec, rn = (op.args[name] for name in ("type", "n", "rtype", "rn"))
        source, tag = self.envelope(op, "rtag")
        left = f"{self.send_buffer(spec, n, op.args['m'])}, {n // Type(spec).per}"
        left += f", {self.type_of(spec)}, {op.args['to']}, {op.args['tag']}"
        right = f"{self.send_buffer(rspec, rn, 99)}, {-(-rn // Type(rspec).per)}"
        right += f", {self.type_of(rspec)}, {source}, {tag}"
        self.emit(op, f"MPI_Sendrecv({left}, {right}, c[{op.args['c']}], st);")

    def on_psend(self, op: Op) -> None:
        """Both halves of a partitioned message; each part is ready when the program says so."""
        spec, n, parts = op.args["type"], op.args["n"], op.args["parts"]
        sends = op.verb == "psend"
        buffer = self.send_buffer(spec, n * parts, 0)
        peer = op.args["to" if sends else "from"]
        call = f"MPI_P{'send' if sends else 'recv'}_init({buffer}, {parts}, {n // Type(spec).per}"
        call += f", {self.type_of(spec)}, {peer}, {op.args['tag']}, c[{op.args['c']}]"
        self.emit(op, f"{call}, MPI_INFO_NULL, &q[{op.args['q']}]);")

    on_precv = on_psend

    def on_pready(self, op: Op) -> None:
        """MPI_Pready and its relatives."""
        request, parts = f"q[{op.args['q']}]", op.args["list"]
        if op.args["how"] == "range":
            self.emit(op, f"MPI_Pready_range({parts[0]}, {parts[-1]}, {request});")
        else:
            self.emit(op, *(f"MPI_Pready({part}, {request});" for part in parts))

    # --- requests ----------------------------------------------------------------------------

    def on_done(self, op: Op) -> None:
        """Completions."""
        numbers = [number for number, _ in op.args["q"]]
        how = op.args["how"]
        if op.verb == "poke":
            text = "MPI_Test(&q[{0}], &flag, &st[{0}]);"
        elif how in ("wait", "waitall"):
            text = "MPI_Wait(&q[{0}], &st[{0}]);"
        elif how == "status":
            text = "{{ do MPI_Request_get_status(q[{0}], &flag, st); while (!flag);"
            text += " MPI_Wait(&q[{0}], &st[{0}]); }}"
        else:
            text = f"do MPI_Test(&q[{{0}}], &flag, &st[{{0}}]); while (!flag);  // {how}"
        # A look before may have completed it: the status is that one's.
        text = "if (q[{0}] != MPI_REQUEST_NULL) " + text
        lines = [text.format(number) for number in numbers]
        self.emit(op, *lines)
        for number in numbers:
            made = self.receives.get((op.ranks[0], number))
            if made is not None and op.verb == "done" and made.verb == "recv":
                self.check(op, made, f"st[{number}]", made.args.get("cand", []))

    on_poke = on_done

    def on_start(self, op: Op) -> None:
        """MPI_Start."""
        self.emit(op, *(f"MPI_Start(&q[{number}]);" for number, _ in op.args["q"]))

    def on_free(self, op: Op) -> None:
        """MPI_Request_free."""
        self.emit(op, f"MPI_Request_free(&q[{op.args['q']}]);")

    def on_cancel(self, op: Op) -> None:
        """MPI_Cancel."""
        self.emit(op, f"MPI_Cancel(&q[{op.args['q']}]);")

    def on_look(self, op: Op) -> None:
        """MPI_Iprobe."""
        source, tag = self.envelope(op)
        self.emit(op, f"MPI_Iprobe({source}, {tag}, c[{op.args['c']}], &flag, st);")

    def on_delay(self, op: Op) -> None:
        """A pause."""
        self.emit(op, f"usleep({op.args['us']});")

    # --- collectives and communicators ---------------------------------------------------------

    def on_coll(self, op: Op) -> None:
        """Collectives; their results are left to the interpreter."""
        from fuzz.standalone_collectives import call

        self.emit(op, *call(self, op))

    def on_comm(self, op: Op) -> None:
        """New communicators."""
        from fuzz.standalone_collectives import new_comm

        self.emit(op, *new_comm(self.program, op))

    def on_commfree(self, op: Op) -> None:
        """MPI_Comm_free."""
        self.emit(op, f"MPI_Comm_free(&c[{op.args['c']}]);")

    def text(self, how: str) -> str:
        """Return the whole file."""
        self.types_of_buffers: list[str] = []
        handlers: dict[str, Any] = {"sinit": self.on_send, "rinit": self.on_recv}
        for op in self.program.ops:
            handler = handlers.get(op.verb) or getattr(self, f"on_{op.verb}", None)
            if handler is None:
                self.emit(op, f"// {op.text()}")
            else:
                handler(op)
        top = [f"// {how}", f"// mpicc this.c && mpirun -n {self.program.ranks} ./a.out"]
        head = HEAD.replace("#include <string.h>\n", "#include <string.h>\n#include <unistd.h>\n")
        parts = [*top, head.rstrip(), *self.types_of_buffers, *self.make_types(), *self.body]
        return "\n".join(parts) + "\n" + TAIL


def standalone(program: Program, how: str) -> str:
    """Return the source of a program; `how` says what it is run with."""
    return Printer(program).text(how)

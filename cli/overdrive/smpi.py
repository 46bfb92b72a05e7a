"""SMPI for Python: messages whose data stays where it is, over mpi4py and the buffer protocol.

    from mpi4py import MPI
    from overdrive import smpi

    comm = smpi.attach(MPI.COMM_WORLD)              # collective
    if comm.rank == 0:
        block = smpi.Block(8000)                    # message memory
        block.array("f8")[:] = 1.0
        comm.send(block, dest=1)                    # lent: not to be written until reclaim()
        block.reclaim()
    else:
        with comm.recv(source=0) as view:           # read-only; released at the end of the block
            print(view.array("f8").sum())           # no copy

Between ranks that run under Overdrive on one node only addresses are passed; other ranks, and
programs without Overdrive, get copies. The messages are those of `overdrive/smpi.h`, so ranks in C
and in Python understand each other. Any object with a contiguous buffer may be sent; what does not
lie in a block is copied first. Arrays made from a view or block are valid until it is released,
passed or freed, which nothing but the debug mode (`OVERDRIVE_SMPI_DEBUG=1`) checks.

Requests are mpi4py's: `MPI.Request.Waitall` completes mixed lists. Errors are `MPI.Exception`.
One thread at a time may use this module.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from typing import TYPE_CHECKING, Any, Union

from mpi4py import MPI

if TYPE_CHECKING:
    from types import TracebackType

    import numpy

__all__ = ["Block", "Comm", "View", "attach"]

_VERSION = 2
_FRONT, _HEAD, _ALIGNMENT = 192, 48, 64
_DESCRIPTOR_BYTES = 40
_SHORT_HEAD, _SHORT_BYTES, _COPIED_BYTES = 16, 512, 4096
_NEAR_BYTES = _SHORT_HEAD + _COPIED_BYTES
"""Most that a near message has: short ones come with their data."""
_LENT, _PASSED, _SHORT, _DATA = 0x6F643, 0x6F644, 0x6F645, 0x6F646
_OK = 0
Buffer = Any
"""An object with a contiguous buffer, or a Block."""


class _Place(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("block", "offset", "bytes")),
        ("home", ctypes.c_uint32),
        ("passed", ctypes.c_uint32),
    ]


class _Head(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("source", ctypes.c_int32),
        ("tag", ctypes.c_int32),
        ("home", ctypes.c_uint32),  # of a short message: how many bytes it has
        *((name, ctypes.c_uint64) for name in ("bytes", "block", "offset", "unused")),
    ]

    def length(self) -> int:
        """Return how many bytes the message has."""
        return self.home if self.kind == _SHORT else self.bytes

    def lengthen(self) -> None:
        """Make a short message look like one whose data lies behind the whole of the head."""
        start = ctypes.addressof(self)
        ctypes.memmove(start + _HEAD, start + _SHORT_HEAD, self.home)
        self.kind, self.bytes = _DATA, self.home


class _Card(ctypes.Structure):
    _fields_ = [
        ("group", ctypes.c_uint64 * 2),
        ("member", ctypes.c_int32),
        ("has_engine", ctypes.c_int32),
    ]


_self, _pointer, _site = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p
_size, _count = ctypes.c_uint64, ctypes.c_uint32
_place = ctypes.POINTER(_Place)


def _function(result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, _self, *arguments)


class _Table(ctypes.Structure):
    """struct overdrive_smpi_engine."""

    _fields_ = [
        ("version", ctypes.c_uint32),
        ("size_bytes", ctypes.c_uint32),
        ("self", ctypes.c_void_p),
        ("group", ctypes.c_uint64 * 2),
        ("member", ctypes.c_int32),
        ("debug", ctypes.c_int32),
        ("alloc", _function(ctypes.c_void_p, _size, _site)),
        ("free", _function(ctypes.c_int, _pointer, _site)),
        ("capacity", _function(ctypes.c_int, _pointer, ctypes.POINTER(_size))),
        ("lend", _function(ctypes.c_int, _pointer, _size, _count, _place)),
        ("take_back", _function(None, _place, _count)),
        ("pass_", _function(ctypes.c_int, _pointer, _size, _place)),
        ("settle", _function(ctypes.c_int, _pointer, _size, _place)),
        (
            "open",
            _function(ctypes.c_int, _place, _site, ctypes.POINTER(_pointer), ctypes.POINTER(_size)),
        ),
        ("close", _function(None, _place, _size)),
        ("own", _function(ctypes.c_int, _place, _size, _site, ctypes.POINTER(_pointer))),
        ("lent", _function(ctypes.c_int64, _pointer)),
        ("pause", _function(None)),
        ("released_twice", _function(None, _size)),
        ("note_copy", _function(None, _size)),
        # What follows is there if size_bytes says so.
        ("offer", _function(ctypes.c_int, _pointer, _size, _place)),
        ("free_after", _function(ctypes.c_int, _pointer, _pointer)),
    ]


_sites: dict[str, bytes] = {}


def _where() -> bytes:
    """Return the place in the program that calls, as text that lives as long as the process."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    text = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return _sites.setdefault(text, text.encode())


class _Overdrive:
    """Blocks and views of Overdrive's engine."""

    def __init__(self, table: _Table) -> None:
        self.table, self.me = table, table.self
        self.group = tuple(table.group)

    def alloc(self, size: int) -> int:
        return self.table.alloc(self.me, size, _where()) or 0

    def free(self, block: int) -> int:
        return self.table.free(self.me, block, None)

    def capacity(self, block: int) -> int | None:
        size = _size()
        found = self.table.capacity(self.me, block, ctypes.byref(size))
        return size.value if found == _OK else None

    def lend(self, address: int, size: int, views: int, place: _Place) -> int:
        return self.table.lend(self.me, address, size, views, ctypes.byref(place))

    def give(self, block: int, size: int, place: _Place, local: bool) -> int:
        function = self.table.settle if local else self.table.pass_
        return function(self.me, block, size, ctypes.byref(place))

    def open(self, place: _Place) -> tuple[int, int]:
        address, view = _pointer(), _size()
        result = self.table.open(
            self.me, ctypes.byref(place), _where(), ctypes.byref(address), ctypes.byref(view)
        )
        if result != _OK:
            raise MPI.Exception(MPI.ERR_INTERN)
        return address.value or 0, view.value

    def close(self, place: _Place, view: int) -> None:
        self.table.close(self.me, ctypes.byref(place), view)

    def own(self, place: _Place, view: int) -> int:
        block = _pointer()
        if self.table.own(self.me, ctypes.byref(place), view, None, ctypes.byref(block)) != _OK:
            raise MPI.Exception(MPI.ERR_INTERN)
        return block.value or 0

    def lent(self, block: int) -> int:
        return self.table.lent(self.me, block)

    def pause(self) -> None:
        self.table.pause(self.me)

    def note_copy(self, size: int) -> None:
        self.table.note_copy(self.me, size)

    def free_after(self, block: int, request: MPI.Request) -> bool:
        """Tell whether the block is freed when the program has completed the request."""
        if self.table.size_bytes < _Table.free_after.offset + ctypes.sizeof(_pointer):
            return False
        return self.table.free_after(self.me, block, MPI._addressof(request)) == _OK


class _Local:
    """The same for this process alone, without Overdrive."""

    group = (0, 0)

    def __init__(self) -> None:
        self.blocks: dict[int, list[Any]] = {}  # memory, capacity, references, owned

    def alloc(self, size: int) -> int:
        memory = (ctypes.c_char * (size + _FRONT + _ALIGNMENT))()
        block = ctypes.addressof(memory) + _FRONT
        block += -block % _ALIGNMENT
        self.blocks[block] = [memory, size, 1, True]
        return block

    def _owned(self, block: int) -> list[Any] | None:
        found = self.blocks.get(block)
        return found if found is not None and found[3] else None

    def _drop(self, block: int) -> None:
        self.blocks[block][2] -= 1
        if self.blocks[block][2] == 0:
            del self.blocks[block]

    def free(self, block: int) -> int:
        found = self._owned(block)
        if found is None:
            return 1
        found[3] = False
        self._drop(block)
        return _OK

    def capacity(self, block: int) -> int | None:
        found = self._owned(block)
        return found[1] if found is not None else None

    def lend(self, address: int, size: int, views: int, place: _Place) -> int:
        found = self._owned(address)
        if found is None or size > found[1]:
            return 1
        found[2] += views
        place.block, place.offset, place.bytes, place.passed = address, address, size, 0
        return _OK

    def give(self, block: int, size: int, place: _Place, local: bool) -> int:
        del local
        found = self._owned(block)
        if found is None or size > found[1]:
            return 1
        found[3] = False
        place.block, place.offset, place.bytes, place.passed = block, block, size, 1
        return _OK

    def open(self, place: _Place) -> tuple[int, int]:
        return place.offset, 0

    def close(self, place: _Place, view: int) -> None:
        del view
        self._drop(place.block)

    def own(self, place: _Place, view: int) -> int:
        del view
        self.blocks[place.block][3] = True
        return place.block

    def lent(self, block: int) -> int:
        found = self._owned(block)
        return found[2] - 1 if found is not None else -1

    def pause(self) -> None:
        pass

    def note_copy(self, size: int) -> None:
        del size

    def free_after(self, block: int, request: MPI.Request) -> bool:
        del block, request
        return False


_Engine = Union[_Overdrive, _Local]
_found: list[_Engine] = []


def _engine() -> _Engine:
    if not _found:
        try:
            find = ctypes.CDLL(None).overdrive_smpi_engine
        except AttributeError:
            _found.append(_Local())
        else:
            find.restype, find.argtypes = ctypes.POINTER(_Table), [ctypes.c_uint32]
            table = find(_VERSION)
            _found.append(_Overdrive(table.contents) if table else _Local())
    return _found[0]


def _memory(address: int, size: int) -> Any:
    """Return the bytes at an address as an object with a buffer."""
    kind = ctypes.c_char * size
    return kind.from_address(address) if size > 0 else kind()


def _array(owner: Any, address: int, size: int, dtype: Any, shape: Any, write: bool) -> Any:
    import numpy

    kind = numpy.dtype(dtype)
    memory = _memory(address, size - size % kind.itemsize)
    # The array keeps the block or view alive.
    memory.owner = owner
    made = numpy.frombuffer(memory, kind) if len(memory) else numpy.empty(0, kind)
    made = made if shape is None else made.reshape(shape)
    made.flags.writeable = write
    return made


class Block:
    """Message memory that this rank owns: at least `size` bytes, aligned to 64."""

    def __init__(self, size: int, _address: int = 0) -> None:
        self.size = size
        self._address = _address or _engine().alloc(size)
        if not self._address:
            raise MPI.Exception(MPI.ERR_NO_MEM)

    @property
    def address(self) -> int:
        """Return the address of the first byte."""
        if not self._address:
            raise MPI.Exception(MPI.ERR_BUFFER)
        return self._address

    def array(self, dtype: Any = "u1", shape: Any = None) -> numpy.ndarray:
        """Return the memory as a numpy array, without a copy."""
        return _array(self, self.address, self.size, dtype, shape, True)

    @property
    def lent(self) -> int:
        """Return how many views of the block there are."""
        return _engine().lent(self.address)

    def reclaim(self) -> None:
        """Wait until there are none: then the block may be written again."""
        while self.lent > 0:
            MPI.COMM_SELF.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
            _progress()
            _engine().pause()

    def free(self) -> None:
        """Give the memory back; views of it stay valid."""
        if _engine().free(self.address) != _OK:
            raise MPI.Exception(MPI.ERR_BUFFER)
        self._address = 0

    def __del__(self) -> None:
        if getattr(self, "_address", 0):
            _engine().free(self._address)


class _Gathered:
    """A block into which data of all ranks comes, for a view of each."""

    def __init__(self, size: int, views: int) -> None:
        self.block, self.size, self.views = _engine().alloc(size), size, views
        self.place: _Place | None = None
        if not self.block:
            raise MPI.Exception(MPI.ERR_NO_MEM)

    def lent(self) -> _Place:
        """Return its place, lent to all views: the last one frees it."""
        if self.place is None:
            self.place = _Place()
            _engine().lend(self.block, self.size, self.views, self.place)
            _engine().free(self.block)
        return self.place


class View:
    """A received message, read-only until `release` or the end of a `with` block.

    Of a non-blocking receive it may be used when the request is complete.
    """

    def __init__(self) -> None:
        self._near = (ctypes.c_char * (_HEAD + _COPIED_BYTES))()
        self._head = _Head.from_buffer(self._near)
        self._block = 0  # where a far message is received
        self._limit = 0
        self._start = 0  # of a scatter: where its part begins in what is lent
        self._gathered: tuple[_Gathered, int] | None = None  # and where its part begins
        self._place: _Place | None = None
        self._address = self._number = 0
        self._state = "pending"
        self._source, self._tag, self._bytes = MPI.PROC_NULL, MPI.ANY_TAG, 0

    def _fail(self, code: int) -> None:
        self._state = "empty"
        raise MPI.Exception(code)

    def _settle(self) -> None:
        if self._state == "released":
            raise MPI.Exception(MPI.ERR_ARG)
        if self._state != "pending":
            return
        engine = _engine()
        if self._gathered is not None:
            whole, start = self._gathered[0].lent(), self._gathered[1]
            self._open(_Place(whole.block, whole.offset + start, self._limit, whole.home, 0))
            return
        head = _Head.from_address(self._block - _HEAD) if self._block else self._head
        if head.kind == 0:
            raise MPI.Exception(MPI.ERR_TRUNCATE if self._block else MPI.ERR_PENDING)
        self._source, self._tag = head.source, head.tag
        too_long = head.length() > self._limit
        block, self._block = self._block, 0
        if head.kind == _SHORT and not too_long:
            head.lengthen()
        if head.kind in (_LENT, _PASSED):
            start, passed = head.offset + self._start, int(head.kind == _PASSED)
            place = _Place(head.block, start, head.bytes, head.home, passed)
            if block:
                engine.free(block)
            if too_long:
                engine.close(place, 0)
        elif not block:
            if too_long:
                self._fail(MPI.ERR_TRUNCATE)
            self._address = ctypes.addressof(self._near) + _HEAD
            self._bytes, self._state = head.bytes, "inline"
            return
        else:
            place = _Place()
            if too_long:
                engine.free(block)
            elif engine.give(block, head.bytes, place, True) != _OK:
                self._fail(MPI.ERR_INTERN)
        if too_long:
            self._fail(MPI.ERR_TRUNCATE)
        self._open(place)

    def _open(self, place: _Place) -> None:
        self._address, self._number = _engine().open(place)
        self._place, self._bytes, self._state = place, place.bytes, "open"

    @property
    def size(self) -> int:
        """Return the length of the message in bytes."""
        self._settle()
        return self._bytes

    @property
    def source(self) -> int:
        """Return the rank that has sent it."""
        self._settle()
        return self._source

    @property
    def tag(self) -> int:
        """Return its tag."""
        self._settle()
        return self._tag

    def array(self, dtype: Any = "u1", shape: Any = None) -> numpy.ndarray:
        """Return the message as a read-only numpy array, without a copy."""
        self._settle()
        return _array(self, self._address, self._bytes, dtype, shape, False)

    def release(self) -> None:
        """End the view."""
        if self._state == "released":
            raise MPI.Exception(MPI.ERR_ARG)
        if self._state == "pending":
            try:
                self._settle()
            except MPI.Exception:
                pass
        if self._state == "pending" and self._block:
            _engine().free(self._block)
        if self._state == "open":
            _engine().close(self._place, self._number)
        self._state, self._block = "released", 0

    def own(self) -> Block:
        """End the view and return a block of one's own: the one that was passed, else a copy."""
        self._settle()
        if self._state not in ("open", "inline"):
            raise MPI.Exception(MPI.ERR_ARG)
        if self._place is not None and self._place.passed:
            address = _engine().own(self._place, self._number)
            _Head.from_address(address - _HEAD).kind = 0
            self._state = "released"
            return Block(self._bytes, address)
        block = Block(self._bytes)
        ctypes.memmove(block.address, self._address, self._bytes)
        self.release()
        return block

    def __enter__(self) -> View:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._state != "released":
            self.release()

    def __del__(self) -> None:
        if getattr(self, "_state", "released") == "open":
            self.release()


_pending: list[tuple[MPI.Request, int]] = []
"""Sends of our own, and the block that is to be freed after each."""


def _progress() -> None:
    while _pending and _pending[0][0].Test():
        _engine().free(_pending.pop(0)[1])


def _finish() -> None:
    if MPI.Is_initialized() and not MPI.Is_finalized():
        for request, _ in _pending:
            request.Wait()


atexit.register(_finish)


def _span(data: Buffer) -> tuple[int, int]:
    """Return address and length of what is to be sent."""
    if isinstance(data, Block):
        return data.address, data.size
    seen = memoryview(data)
    if not seen.contiguous:
        raise MPI.Exception(MPI.ERR_TYPE)
    return (MPI.Get_address(seen) if seen.nbytes else 0), seen.nbytes


class Comm:
    """A communicator that SMPI knows; made by `attach`."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self._hidden = comm.Dup()
        self._hidden.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size = comm.rank, comm.size
        engine = _engine()
        mine = _Card((ctypes.c_uint64 * 2)(*engine.group), 0, int(isinstance(engine, _Overdrive)))
        cards = (_Card * self.size)()
        self._hidden.Allgather([mine, MPI.BYTE], [cards, MPI.BYTE])
        keys = [
            (tuple(card.group) if card.has_engine else ("alone", i)) for i, card in enumerate(cards)
        ]
        self._near = [i == self.rank or key == keys[self.rank] for i, key in enumerate(keys)]
        order = list(dict.fromkeys(keys))
        self._groups = [[i for i in range(self.size) if keys[i] == key] for key in order]
        self._group_of = [order.index(key) for key in keys]
        self._mine = self._groups[self._group_of[self.rank]]
        self._node = self._leaders = MPI.COMM_NULL
        if len(order) == 1:
            self._node = self._hidden
        elif len(order) == self.size:
            self._leaders = self._hidden
        else:
            self._node = self._hidden.Split(self._group_of[self.rank], self.rank)
            leads = self._mine[0] == self.rank
            self._leaders = self._hidden.Split(0 if leads else MPI.UNDEFINED, self.rank)
        self._stash: list[View] = []

    def near(self, rank: int) -> bool:
        """Tell whether messages to and from `rank` go by address."""
        return self._near[rank]

    # --- sending

    def _check(self, dest: int, tag: int) -> None:
        if dest != MPI.PROC_NULL and not 0 <= dest < self.size:
            raise MPI.Exception(MPI.ERR_RANK)
        if tag < 0:
            raise MPI.Exception(MPI.ERR_TAG)

    def _lend(self, data: Buffer, views: int) -> _Place:
        address, size = _span(data)
        place, engine = _Place(), _engine()
        if address and engine.lend(address, size, views, place) == _OK:
            return place
        copy = engine.alloc(size)
        if not copy:
            raise MPI.Exception(MPI.ERR_NO_MEM)
        if size:
            ctypes.memmove(copy, address, size)
        engine.lend(copy, size, views, place)
        engine.free(copy)
        return place

    def _tell(self, place: _Place, dest: int, tag: int) -> MPI.Request:
        kind = _PASSED if place.passed else _LENT
        head = _Head(kind, self.rank, tag, place.home, place.bytes, place.block, place.offset)
        return self._hidden.Isend([head, _DESCRIPTOR_BYTES, MPI.BYTE], dest, tag)

    def _far(self, address: int, size: int, passed: int, dest: int, tag: int) -> MPI.Request:
        """Send head and data in one piece; the request keeps a copy where there has to be one."""
        engine = _engine()
        engine.note_copy(size)
        head = _Head(_DATA, self.rank, tag, 0, size)
        if address and engine.capacity(address) is not None:
            front = _Head.from_address(address - _HEAD)
            if front.kind == 0 or passed:
                ctypes.memmove(address - _HEAD, ctypes.byref(head), _HEAD)
            if bytes(front) == bytes(head):
                memory = _memory(address - _HEAD, _HEAD + size)
                return self._hidden.Isend([memory, MPI.BYTE], dest, tag)
        copy = bytearray(_HEAD + size)
        copy[:_HEAD] = bytes(head)
        if size:
            copy[_HEAD:] = memoryview(_memory(address, size)).cast("B")
        return self._hidden.Isend([copy, MPI.BYTE], dest, tag)

    def isend(self, data: Buffer, dest: int, tag: int = 0) -> MPI.Request:
        """Lend `data` to `dest`; complete when other memory than a block may be written again."""
        _progress()
        self._check(dest, tag)
        if dest == MPI.PROC_NULL:
            return self._done()
        if self._near[dest]:
            return self._tell(self._lend(data, 1), dest, tag)
        return self._far(*_span(data), 0, dest, tag)

    def send(self, data: Buffer, dest: int, tag: int = 0) -> None:
        """Lend `data` to `dest`."""
        request = self.isend(data, dest, tag)
        if dest == self.rank and not request.Test():
            _pending.append((request, 0))
        elif dest != self.rank:
            request.Wait()

    def ipass(self, block: Block, dest: int, tag: int = 0) -> MPI.Request:
        """Make `dest` the owner of the block, which is not this rank's any more."""
        _progress()
        self._check(dest, tag)
        address, size, engine = block.address, block.size, _engine()
        if dest == MPI.PROC_NULL:
            block.free()
            return self._done()
        if self._near[dest]:
            place = _Place()
            if engine.give(address, size, place, False) != _OK:
                raise MPI.Exception(MPI.ERR_BUFFER)
            block._address = 0
            return self._tell(place, dest, tag)
        request = self._far(address, size, 1, dest, tag)
        block._address = 0
        if request.Test():
            engine.free(address)
        elif engine.free_after(address, request):
            return request
        else:
            _pending.append((request, address))
        return self._done()

    def pass_(self, block: Block, dest: int, tag: int = 0) -> None:
        """Make `dest` the owner of the block."""
        request = self.ipass(block, dest, tag)
        if dest == self.rank and not request.Test():
            _pending.append((request, 0))
        elif dest != self.rank:
            request.Wait()

    def _done(self) -> MPI.Request:
        return self._hidden.Isend([None, 0, MPI.BYTE], MPI.PROC_NULL)

    # --- receiving

    def _unstash(self, source: int, tag: int) -> View | None:
        for view in self._stash:
            if source in (MPI.ANY_SOURCE, view._source) and tag in (MPI.ANY_TAG, view._tag):
                return view
        return None

    def _fetch(self, message: MPI.Message, status: MPI.Status) -> View:
        """Receive a matched message, whatever its length."""
        view, size = View(), status.Get_count(MPI.BYTE)
        if size <= _NEAR_BYTES:
            message.Recv([view._near, _NEAR_BYTES, MPI.BYTE])
            if view._head.kind == _SHORT:
                view._head.lengthen()
            if view._head.kind == _DATA:
                view._block = _engine().alloc(view._head.bytes)
                if not view._block:
                    raise MPI.Exception(MPI.ERR_NO_MEM)
                ctypes.memmove(view._block - _HEAD, view._near, _HEAD + view._head.bytes)
        else:
            view._block = _engine().alloc(size - _HEAD)
            if not view._block:
                raise MPI.Exception(MPI.ERR_NO_MEM)
            message.Recv([_memory(view._block - _HEAD, size), MPI.BYTE])
            ctypes.memmove(ctypes.byref(view._head), view._block - _HEAD, _HEAD)
        view._source, view._tag, view._bytes = status.source, status.tag, view._head.bytes
        view._limit = view._head.bytes
        return view

    def recv(
        self, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, most: int | None = None
    ) -> View:
        """Receive a message, of at most `most` bytes if that is given."""
        _progress()
        if source == MPI.PROC_NULL:
            view = View()
            view._state = "empty"
            return view
        view = self._unstash(source, tag)
        if view is not None:
            self._stash.remove(view)
        else:
            status = MPI.Status()
            view = self._fetch(self._hidden.Mprobe(source, tag, status), status)
        if most is not None:
            view._limit = most
        view._settle()
        return view

    def irecv(
        self, most: int, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG
    ) -> tuple[View, MPI.Request]:
        """Start to receive a message of at most `most` bytes."""
        _progress()
        view = self._unstash(source, tag)
        if view is not None:
            self._stash.remove(view)
            view._limit = most
            return view, self._done()
        view = View()
        view._limit = most
        if source == MPI.PROC_NULL:
            view._state = "empty"
            return view, self._done()
        if all(self._near) if source == MPI.ANY_SOURCE else self._near[source]:
            buffer = [view._near, _NEAR_BYTES, MPI.BYTE]
        else:
            view._block = _engine().alloc(most)
            if not view._block:
                raise MPI.Exception(MPI.ERR_NO_MEM)
            buffer = [_memory(view._block - _HEAD, _HEAD + most), MPI.BYTE]
        return view, self._hidden.Irecv(buffer, source, tag)

    def probe(self, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG) -> tuple[int, int, int]:
        """Wait for a message; return its source, tag and length."""
        view = self._unstash(source, tag)
        if view is None:
            status = MPI.Status()
            view = self._fetch(self._hidden.Mprobe(source, tag, status), status)
            self._stash.append(view)
        return view._source, view._tag, view._head.bytes

    # --- collectives

    def _part(self, place: _Place, start: int, size: int, source: int) -> View:
        view = View()
        view._source = source
        view._open(_Place(place.block, place.offset + start, size, place.home, 0))
        return view

    def _spread(self, place: _Place, root: int) -> None:
        if self._node != MPI.COMM_NULL:
            self._node.Bcast([place, MPI.BYTE], self._mine.index(root))

    def bcast(self, data: Buffer | None, size: int, root: int = 0) -> View:
        """Return a view of the root's `size` bytes at every rank."""
        _progress()
        engine, place, mine = _engine(), _Place(), root in self._mine
        if mine:
            if self.rank == root:
                views = len(self._mine) + (len(self._groups) > 1)
                place = self._lend(data, views)
            self._spread(place, root)
        if self._leaders != MPI.COMM_NULL:
            address, number = engine.open(place) if mine else (engine.alloc(size), 0)
            if mine:
                engine.note_copy(size)
            buffer = [_memory(address, size), size, MPI.BYTE]
            self._leaders.Bcast(buffer, self._group_of[root])
            if mine:
                engine.close(place, number)
            else:
                engine.lend(address, size, len(self._mine), place)
                engine.free(address)
        if not mine:
            self._spread(place, self._mine[0])
        return self._part(place, 0, size, root)

    def scatter(self, data: Buffer | None, size: int, root: int = 0) -> View:
        """Return a view of `size` bytes of the root's data: each rank's its own, in their order."""
        _progress()
        engine, place, mine = _engine(), _Place(), root in self._mine
        if mine:
            if self.rank == root:
                self._parts(data, size)
                place = self._lend(data, len(self._mine) + (len(self._groups) > 1))
            self._spread(place, root)
        if self._leaders != MPI.COMM_NULL:
            if mine:
                self._deal(place, size, self._group_of[root])
            else:
                whole = size * len(self._mine)
                block = engine.alloc(whole)
                if not block:
                    raise MPI.Exception(MPI.ERR_NO_MEM)
                self._leaders.Recv([_memory(block, whole), MPI.BYTE], self._group_of[root])
                engine.lend(block, whole, len(self._mine), place)
                engine.free(block)
        if not mine:
            self._spread(place, self._mine[0])
        index = self.rank if mine else self._mine.index(self.rank)
        return self._part(place, index * size, size, root)

    def _parts(self, data: Buffer | None, size: int) -> None:
        if data is None or _span(data)[1] < size * self.size:
            raise MPI.Exception(MPI.ERR_COUNT)

    def _deal(self, place: _Place, size: int, own: int) -> None:
        """Send each other group its ranks' parts, one after the other."""
        engine = _engine()
        address, number = engine.open(place)
        for index, group in enumerate(self._groups):
            if index == own:
                continue
            parts = (_memory(address + rank * size, size) for rank in group)
            packed = b"".join(bytes(part) for part in parts)
            engine.note_copy(len(packed))
            self._leaders.Send([packed, MPI.BYTE], index)
        engine.close(place, number)

    def allgather(self, data: Buffer) -> list[View]:
        """Return views of what all ranks give, which is equally long everywhere."""
        _progress()
        engine, size, several = _engine(), _span(data)[1], len(self._groups) > 1
        place = self._lend(data, len(self._mine) + several)
        places = (_Place * len(self._mine))(place)
        if self._node != MPI.COMM_NULL:
            self._node.Allgather([place, MPI.BYTE], [places, MPI.BYTE])
        views: dict[int, View] = {
            rank: self._part(places[i], 0, size, rank) for i, rank in enumerate(self._mine)
        }
        if several:
            whole = _Place()
            counts = [size * len(group) for group in self._groups]
            starts = [sum(counts[:i]) for i in range(len(counts))]
            if self._leaders != MPI.COMM_NULL:
                block = engine.alloc(size * self.size)
                own = block + starts[self._group_of[self.rank]]
                for i, one in enumerate(places):
                    address, number = engine.open(one)
                    ctypes.memmove(own + i * size, address, size)
                    engine.close(one, number)
                memory = _memory(block, size * self.size)
                self._leaders.Allgatherv(MPI.IN_PLACE, [memory, counts, starts, MPI.BYTE])
                others = self.size - len(self._mine)
                engine.lend(block, size * self.size, others * len(self._mine), whole)
                engine.free(block)
            self._spread(whole, self._mine[0])
            for number, group in enumerate(self._groups):
                if number == self._group_of[self.rank]:
                    continue
                for i, rank in enumerate(group):
                    views[rank] = self._part(whole, starts[number] + i * size, size, rank)
        return [views[rank] for rank in range(self.size)]

    def _announce(self, head: _Head, place: _Place, size: int) -> None:
        head.kind, head.source, head.tag = _LENT, self.rank, MPI.ANY_TAG
        head.bytes, head.block, head.offset = size, place.block, place.offset
        head.home = place.home

    def ibcast(self, data: Buffer | None, size: int, root: int = 0) -> tuple[View, MPI.Request]:
        """Start a broadcast; the view may be used when the request is complete."""
        _progress()
        view = View()
        view._limit = size
        if len(self._groups) == 1:
            if self.rank == root:
                self._announce(view._head, self._lend(data, self.size), size)
            return view, self._hidden.Ibcast([view._near, _HEAD, MPI.BYTE], root)
        _engine().note_copy(size)
        if self.rank == root:
            address = _span(data)[0]
            view = self._part(self._lend(data, 1), 0, size, root)
        else:
            view._block = address = _engine().alloc(size)
            if not address:
                raise MPI.Exception(MPI.ERR_NO_MEM)
            head = _Head(_DATA, root, MPI.ANY_TAG, 0, size)
            ctypes.memmove(address - _HEAD, ctypes.byref(head), _HEAD)
        memory = _memory(address, size)
        memory.owner = data
        return view, self._hidden.Ibcast([memory, size, MPI.BYTE], root)

    def iscatter(self, data: Buffer | None, size: int, root: int = 0) -> tuple[View, MPI.Request]:
        """Start a scatter of `size` bytes for each rank; the view may be used when it is done."""
        _progress()
        if self.rank == root:
            self._parts(data, size)
        view = View()
        view._limit, view._start = size, size * self.rank
        if len(self._groups) == 1:
            if self.rank == root:
                self._announce(view._head, self._lend(data, self.size), size)
            return view, self._hidden.Ibcast([view._near, _HEAD, MPI.BYTE], root)
        if self.rank == root:
            _engine().note_copy(size * self.size)
            memory = _memory(_span(data)[0], size * self.size)
            memory.owner = data
            view = self._part(self._lend(data, 1), size * root, size, root)
            return view, self._hidden.Iscatter([memory, size, MPI.BYTE], MPI.IN_PLACE, root)
        view._block = address = _engine().alloc(size)
        if not address:
            raise MPI.Exception(MPI.ERR_NO_MEM)
        head = _Head(_DATA, root, MPI.ANY_TAG, 0, size)
        ctypes.memmove(address - _HEAD, ctypes.byref(head), _HEAD)
        return view, self._hidden.Iscatter(None, [_memory(address, size), size, MPI.BYTE], root)

    def iallgather(self, data: Buffer) -> tuple[list[View], MPI.Request]:
        """Start an allgather; the views may be used when the request is complete."""
        _progress()
        size = _span(data)[1]
        views = [View() for _ in range(self.size)]
        for rank, view in enumerate(views):
            view._limit, view._source = size, rank
        if len(self._groups) == 1:
            heads = (_Head * self.size)()
            self._announce(heads[self.rank], self._lend(data, self.size), size)
            for rank, view in enumerate(views):
                view._head = heads[rank]
            return views, self._hidden.Iallgather(MPI.IN_PLACE, [heads, MPI.BYTE])
        whole = _Gathered(size * self.size, self.size)
        _engine().note_copy(whole.size)
        for rank, view in enumerate(views):
            view._gathered = whole, size * rank
        memory = _memory(_span(data)[0], size)
        memory.owner = data
        into = _memory(whole.block, whole.size)
        return views, self._hidden.Iallgather([memory, size, MPI.BYTE], [into, size, MPI.BYTE])


def attach(comm: MPI.Intracomm) -> Comm:
    """Make a communicator known to SMPI; collective."""
    return Comm(comm)

"""The system call bpf(2), and programs of its instructions (linux/bpf.h)."""

from __future__ import annotations

import ctypes
import platform
import struct

from tvsnap.host.libc import checked, libc

MAP_CREATE, MAP_UPDATE, MAP_DELETE, MAP_NEXT_KEY, LINK_CREATE, ITERATOR_CREATE = 0, 2, 3, 4, 28, 33
"""Commands of bpf(2)."""
STACK = 10
"""The register that points to the end of the stack; registers 0 to 9 hold values."""

_SYSTEM_CALL = {"x86_64": 321, "aarch64": 280}
_PROGRAM_LOAD = 5
_SIZES = {1: 0x10, 4: 0x00, 8: 0x18}  # bytes that an instruction reads or writes -> the bits for this
_MAP = 1  # a source of `wide` constants: the constant is the descriptor of a map


def bpf(command: int, fields: bytes, what: str) -> int:
    """Returns the result of bpf(2), such as a descriptor; raises its OSError, about `what`.

    Args:
        command: such as `MAP_CREATE`.
        fields: the beginning of `union bpf_attr`; the kernel takes the rest as zeros.
        what: names the object in errors.
    """
    number = _SYSTEM_CALL.get(platform.machine())
    if number is None:
        raise OSError(0, f"unknown processor {platform.machine()}", what)
    buffer = ctypes.create_string_buffer(fields, len(fields))
    return checked(libc.syscall(number, command, buffer, len(fields)), what)


def load_program(code: bytes, kind: int, attachment: int, *, name: bytes = b"", function: int = 0) -> int:
    """Loads a program into the kernel; returns its descriptor.

    Args:
        code: its instructions.
        kind: `enum bpf_prog_type`.
        attachment: `enum bpf_attach_type`.
        name: its name in lists of the kernel's programs; at most 15 bytes.
        function: the id of the kernel's function to which it is attached, in the kernel's type information.
    """
    instructions, licence = (ctypes.create_string_buffer(text, len(text) + 1) for text in (code, b"GPL"))
    addresses = map(ctypes.addressof, (instructions, licence))
    fields = struct.pack(
        "=2I2Q2IQ2I16s2I36xI", kind, len(code) // 8, *addresses, 0, 0, 0, 0, 0, name, 0, attachment, function
    )
    return bpf(_PROGRAM_LOAD, fields, "a program")


class Code:
    """A program under construction; each method appends an instruction.

    Registers are numbers, 0 to 10; sizes are in bytes, of 1, 4 and 8.
    """

    def __init__(self) -> None:
        # operation, target, source, offset or the label that a jump leads to, constant
        self._instructions: list[tuple[int, int, int, int | str, int]] = []
        self._labels: dict[str, int] = {}

    def label(self, name: str) -> None:
        """Names the next instruction, for jumps."""
        self._labels[name] = len(self._instructions)

    def load(self, size: int, target: int, source: int, offset: int) -> None:
        """Reads the memory at a register's address plus an offset into `target`."""
        self._append(0x61 | _SIZES[size], target, source, offset)

    def store(self, size: int, target: int, offset: int, source: int) -> None:
        """Writes a register to the address in `target` plus an offset."""
        self._append(0x63 | _SIZES[size], target, source, offset)

    def store_constant(self, size: int, target: int, offset: int, constant: int) -> None:
        """Writes a constant to the address in `target` plus an offset."""
        self._append(0x62 | _SIZES[size], target, 0, offset, constant)

    def move(self, target: int, source: int) -> None:
        """Copies a register."""
        self._append(0xBF, target, source)

    def set(self, target: int, constant: int) -> None:
        """Sets a register to a constant."""
        self._append(0xB7, target, constant=constant)

    def set_map(self, target: int, descriptor: int) -> None:
        """Sets a register to a map; takes two instructions."""
        self._append(0x18, target, _MAP, constant=descriptor)
        self._append(0)

    def set_address(self, target: int, offset: int) -> None:
        """Sets a register to an address on the stack."""
        self.move(target, STACK)
        self.add(target, offset)

    def add(self, target: int, constant: int) -> None:
        """Adds a constant to a register."""
        self._append(0x07, target, constant=constant)

    def mask(self, target: int, constant: int) -> None:
        """Keeps only a register's bits that are set in a constant."""
        self._append(0x57, target, constant=constant)

    def combine(self, target: int, source: int) -> None:
        """Sets in a register the bits that another has."""
        self._append(0x4F, target, source)

    def shift_left(self, target: int, bits: int) -> None:
        """Shifts a register."""
        self._append(0x67, target, constant=bits)

    def jump_if(self, register: int, constant: int, label: str) -> None:
        """Jumps if a register is equal to a constant."""
        self._append(0x15, register, 0, label, constant)

    def jump_unless(self, register: int, constant: int, label: str) -> None:
        """Jumps if a register is not equal to a constant."""
        self._append(0x55, register, 0, label, constant)

    def jump_if_same(self, one: int, other: int, label: str) -> None:
        """Jumps if two registers are equal."""
        self._append(0x1D, one, other, label)

    def jump_unless_same(self, one: int, other: int, label: str) -> None:
        """Jumps if two registers are not equal."""
        self._append(0x5D, one, other, label)

    def call(self, function: int) -> None:
        """Calls a function of the kernel (`enum bpf_func_id`): arguments in 1 to 5, the result in 0."""
        self._append(0x85, constant=function)

    def leave(self, result: int) -> None:
        """Ends the program with a result."""
        self.set(0, result)
        self._append(0x95)

    def to_bytes(self) -> bytes:
        """Returns the instructions as the kernel reads them."""
        code = b""
        for index, (operation, target, source, offset, constant) in enumerate(self._instructions):
            jump = self._labels[offset] - index - 1 if isinstance(offset, str) else offset
            code += struct.pack("=BBhi", operation, target | source << 4, jump, constant)
        return code

    def _append(
        self, operation: int, target: int = 0, source: int = 0, offset: int | str = 0, constant: int = 0
    ) -> None:
        self._instructions.append((operation, target, source, offset, constant))

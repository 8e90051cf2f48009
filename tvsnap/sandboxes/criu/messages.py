"""Classes for CRIU's protocol buffers, made from the fields that tvsnap uses; other fields are kept as they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
BOOL, INT, UINT, LONG, TEXT = (
    _Field.TYPE_BOOL, _Field.TYPE_INT32, _Field.TYPE_UINT32, _Field.TYPE_UINT64, _Field.TYPE_STRING
)  # fmt: skip


def message_classes(
    file: str, messages: Mapping[str, Mapping[str, tuple[int, int | str]]], repeated: Collection[str] = ()
) -> dict[str, Any]:
    """Returns the classes of messages, by name.

    Args:
        file: a name for all of them together.
        messages: by name: number and type of each used field; the type is a constant of this module or a message.
        repeated: the names of fields that occur several times.
    """
    described = descriptor_pb2.FileDescriptorProto(name=f"tvsnap_{file}.proto", package="tvsnap.criu", syntax="proto2")
    for name, fields in messages.items():
        message = described.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            field = message.field.add(name=field_name, number=number)
            field.label = _Field.LABEL_REPEATED if field_name in repeated else _Field.LABEL_OPTIONAL
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".tvsnap.criu.{kind}"
            else:
                field.type = kind  # type: ignore[assignment]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tvsnap.criu.{name}")) for name in messages
    }

"""The keys `databases` and `database` of image.yaml, as pydantic checks them.

Imported only where a description is read: importing pydantic takes as long as the rest of a short command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, TypeAdapter, ValidationInfo

from tvsnap.images.descriptions.values import UNSAID, Many, Part, Text, checked, existing, kind, listed, word
from tvsnap.plugins.sql.databases.files import DIALECTS, Database, DataFile, check_database_name, data_file

_DATA = "a file's path, or a mapping with from (that path), dialect, table"


class _Data(Part):
    short = "from"
    path: Annotated[Path, existing("a file in the image's folder", Path.is_file)] = Field(
        alias="from", description="the path of the file"
    )
    dialect: Annotated[str, word("|".join(DIALECTS), listed(DIALECTS))] = UNSAID
    table: Annotated[str, word(r"[^\x00]{1,63}", "a table's name of at most 63 characters")] = UNSAID


def _files_of_one(value: object) -> object:
    if value == []:
        raise ValueError(f"needs a file to load: {_DATA}; or a list of such")
    return value if isinstance(value, list) else [value]


DatabaseName = Annotated[Text, AfterValidator(checked(check_database_name))]
_DataFile = Annotated[DataFile, _Data.to(data_file)]
_LISTED = TypeAdapter(Many[_DataFile])
_NAMED = TypeAdapter(dict[DatabaseName, Annotated[Many[_DataFile], BeforeValidator(_files_of_one)]])


def _databases(value: object, info: ValidationInfo) -> tuple[Database, ...]:
    if isinstance(value, dict):
        named = _NAMED.validate_python(value, context=info.context)
        return tuple(Database(name, files) for name, files in named.items())
    if not isinstance(value, list):
        raise ValueError(f"must be a mapping of names to files, or a list of files, not {kind(value)}")
    return tuple(Database("", (file,)) for file in _LISTED.validate_python(value, context=info.context))


KEYS: dict[str, Any] = {
    "databases": Annotated[tuple[Database, ...], PlainValidator(_databases)],
    "database": DatabaseName,
}

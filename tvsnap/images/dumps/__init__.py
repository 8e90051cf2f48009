"""Dumps of MySQL, converted for the engines that images have."""

from tvsnap.images.dumps.converting import Converted, convert_mysql, looks_like_mysql
from tvsnap.images.dumps.errors import DumpError

__all__ = ["Converted", "DumpError", "convert_mysql", "looks_like_mysql"]

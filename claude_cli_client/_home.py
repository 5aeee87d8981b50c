"""`~` in a path: what a shell expands and nothing below it does. Here for every path that users give.

Left as it is, it is a folder of that name below the working directory: a list would be empty, a file
missing or made in the wrong place.
"""

from __future__ import annotations

import os


def expanded(name: str, path: str | os.PathLike[str]) -> str:
    """The path, as text, with the home in the place of `~`. Raises ValueError for that of a user whom nobody knows."""
    found = os.path.expanduser(path)
    if found.startswith("~"):
        user = found.partition("/")[0]
        raise ValueError(
            f"{name} begins with {user}, and nobody knows where that is: {found!r}; a folder of that name is ./{user}"
        )
    return found

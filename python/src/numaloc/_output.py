"""Outputs: complete or absent under their names, and never in the place of what exists unless that is asked for."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import IO, Iterator

from ._numaloc import NumalocError


@contextlib.contextmanager
def appearing(path: str, *, force: bool) -> Iterator[IO[bytes]]:
    """A file to write, which gets the name ``path`` when the block ends without an error.

    Until then it has an unpredictable name, which nobody else created.
    """
    if os.path.lexists(path) and not force:
        raise _exists(path)
    partial = f"{path}.{secrets.token_hex(8)}.partial"
    try:
        file = os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb")
    except OSError as error:
        raise NumalocError(f"cannot write {path}: {error.strerror}") from error
    try:
        with file:
            yield file
        if force:
            os.replace(partial, path)
        else:
            # Fails if the name exists by now.
            os.link(partial, path)
            os.remove(partial)
    except FileExistsError:
        _remove(partial)
        raise _exists(path) from None
    except OSError as error:
        _remove(partial)
        raise NumalocError(f"cannot write {path}: {error.strerror or error}") from error
    except BaseException:
        _remove(partial)
        raise


def _exists(path: str) -> NumalocError:
    return NumalocError(f"cannot write {path}: it exists; force=True (--force) replaces it")


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)

"""Files from the network: downloaded whole, checked, then renamed into place."""

import http.client
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from mental_accounts.data.progress import progress_bar
from mental_accounts.files import whole_file

CHUNK_BYTES = 2**18
TIMEOUT_SECONDS = 30.0


def download(url: str, path: Path, check: Callable[[Path], None]) -> None:
    """Download `url` to `path`. `check` runs before the file gets its final name, and raises if it is incomplete."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # the URLs are this package's own
            header = answer.headers.get("Content-Length")
            expected = int(header) if header is not None else None
            with whole_file(path) as temporary:
                free = shutil.disk_usage(temporary.parent).free
                if expected is not None and expected > free:
                    raise OSError(
                        f"{url} has {expected / 1e6:.0f} MB, but only {free / 1e6:.0f} MB are free in {path.parent}; "
                        "make room, or set MENTAL_ACCOUNTS_CACHE to a folder on another disk"
                    )
                received = 0
                with temporary.open("wb") as file, progress_bar(f"downloading {path.name}", expected) as advance:
                    while chunk := answer.read(CHUNK_BYTES):
                        file.write(chunk)
                        received += len(chunk)
                        advance(len(chunk))
                if expected is not None and received != expected:
                    raise OSError(f"{url} broke off after {received} of {expected} bytes; run the command again")
                check(temporary)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise OSError(
            f"{url} could not be downloaded ({reason}); without a network, copy the file here by other means "
            f"and run: mental-accounts data import FILE"
        ) from error

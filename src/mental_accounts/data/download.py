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
    """Bring `url` to `path`. `check` looks at the file before it gets its name, and raises where it is not whole."""
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
                came = 0
                with temporary.open("wb") as file, progress_bar(f"downloading {path.name}", expected) as advance:
                    while chunk := answer.read(CHUNK_BYTES):
                        file.write(chunk)
                        came += len(chunk)
                        advance(len(chunk))
                if expected is not None and came != expected:
                    raise OSError(f"{url} broke off after {came} of {expected} bytes; run the command again")
                check(temporary)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise OSError(
            f"{url} could not be downloaded ({reason}); where there is no network, bring the file here by other means "
            f"and run: mental-accounts data import FILE"
        ) from error

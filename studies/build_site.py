"""The documentation site, into build/site: `make docs`.

    python studies/build_site.py [FOLDER]

Open index.html there: neither a server nor a network is needed. Warnings are errors, such as a link to nowhere.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDED = {"material": "mkdocs-material", "mkdocstrings_handlers": "mkdocstrings", "latex2mathml": "latex2mathml"}
"""Modules -> the libraries that have them."""


def missing() -> str | None:
    """What to install before the site can be built; None if nothing is missing."""
    names = [library for module, library in NEEDED.items() if find_spec(module) is None]
    if not names:
        return None
    return f"the site needs {', '.join(names)}: run `make docs`, or pip install -c constraints.txt -e '.[docs]'"


def build(folder: Path) -> None:
    """Build the site into a folder."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean", "--site-dir", str(folder)]
    quiet = {"NO_MKDOCS_2_WARNING": "1"}  # of the theme: which version of MkDocs it will follow
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | quiet)


def main() -> None:
    """Build the site, or say what to install first."""
    lacking = missing()
    if lacking is not None:
        sys.exit(f"error: {lacking}")
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "site"
    try:
        build(folder)
    except subprocess.CalledProcessError:
        sys.exit("error: the site was not built; the warnings above say why")
    print(f"open {folder / 'index.html'}")


if __name__ == "__main__":
    main()

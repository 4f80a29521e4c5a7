"""The tutorials as notebooks, made from their pages: part of `make docs`.

    python studies/notebooks.py

A page is the source: its Python blocks become cells of code, everything else cells of text. A test checks that the
notebooks beside the pages are up to date.
"""

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook(page: str) -> str:
    """A page as a notebook of Jupyter (nbformat 4.5), without outputs."""
    cells = []
    for place, text in enumerate(PYTHON_BLOCK.split(page)):  # text and code in turn
        if text.strip():
            cells.append(_cell(text.strip(), f"cell-{place}", is_code=place % 2 == 1))
    whole = {"cells": cells, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def notebooks() -> dict[Path, str]:
    """What each notebook should be."""
    pages = sorted(page for page in FOLDER.glob("*.md") if page.stem != "index")
    return {page.with_suffix(".ipynb"): notebook(page.read_text(encoding="utf-8")) for page in pages}


def _cell(text: str, name: str, *, is_code: bool) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    if not is_code:
        return {"cell_type": "markdown", "id": name, "metadata": {}, "source": lines}
    return {"cell_type": "code", "execution_count": None, "id": name, "metadata": {}, "outputs": [], "source": lines}


def main() -> None:
    """Write them."""
    for path, text in notebooks().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""What the documentation site does to its pages, which are written to be read on GitHub as well: hooks of MkDocs.

- Pages outside docs/ (the changelog, the results) become pages of the site, with the images beside them.
- Links lead to the page of the site where there is one, and to the repository otherwise.
- Headings get the anchors that GitHub gives them.
- Mathematics ($`…`$) becomes MathML and import graphs become tables: no script has to be loaded for them.

It is here because scripts in studies/ are typed and tested like the package.
"""

import os
import posixpath
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from marked_pages import anchor

ROOT = Path(__file__).parents[1]
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "studies/PROTOCOL.md", "results/**/*.md")
"""Pages of the site that are not in docs/. They keep their paths."""

REPOSITORY: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]

FENCED = re.compile(r"^(```.*?^```\n)", re.DOTALL | re.MULTILINE)
GRAPH = re.compile(r"^```mermaid\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
ARROW = re.compile(r"^ +(\w+) --> (\w+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]+)?\)")
EMPTY_HEAD = re.compile(r"<th( [^>]*)?></th>")
MATHS = re.compile(r"\$`([^`\n]+)`\$")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors as on GitHub, and a link to the repository; with `repo_url` the theme would ask GitHub for its stars."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    config.extra["social"] = [{"icon": "fontawesome/brands/git-alt", "link": REPOSITORY, "name": "The repository"}]
    config.theme.static_templates.discard("404.html")  # for servers: its links begin with a slash
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, and the images beside them."""
    for pattern in OUTSIDE:
        for page in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, _name(page), content=page.read_text(encoding="utf-8")))
    for image in sorted((ROOT / "results").rglob("*.png")):
        files.append(File.generated(config, _name(image), abs_src_path=str(image)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn GitHub's Markdown into the site's."""
    markdown = GRAPH.sub(lambda found: _table(ARROW.findall(found[1])), markdown)
    markdown = markdown.replace("```python no-run\n", "```python\n")
    source = page.file.src_uri
    place = source if page.file.generated_by else f"docs/{source}"
    prose = [part if part.startswith("```") else _prose(part, place, files) for part in FENCED.split(markdown)]
    return "".join(prose)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Empty cells in the head of a table head nothing: screen readers would announce them."""
    return EMPTY_HEAD.sub(r"<td\1></td>", html)


def target(link: str, place: str, is_page: Callable[[str], bool]) -> str:
    """Where a relative link of a file leads on the site; both files are named by their paths in the repository."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
    uri, here = path.removeprefix("docs/"), place.removeprefix("docs/")
    if is_page(uri):
        return posixpath.relpath(uri, posixpath.dirname(here) or ".")
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{path}"


def _prose(text: str, place: str, files: Files) -> str:
    def relinked(found: re.Match[str]) -> str:
        link, heading = found[1], found[2] or ""
        if link.startswith(("http://", "https://", "mailto:")):
            return found[0]
        known = files.get_file_from_path
        return f"]({target(link, place, lambda uri: known(uri) is not None)}{heading})"

    text = LINK.sub(relinked, text)
    return MATHS.sub(lambda found: convert(found[1]), text)


def _table(arrows: list[tuple[str, str]]) -> str:
    """Of arrows from one name to another."""
    rows = [f"| `{name}` | {', '.join(f'`{b}`' for a, b in arrows if a == name)} |" for name, _ in arrows]
    return "\n".join(["| room | imports |", "|---|---|", *dict.fromkeys(rows)]) + "\n"


def _name(path: Path) -> str:
    return os.path.relpath(path, ROOT).replace(os.sep, "/")

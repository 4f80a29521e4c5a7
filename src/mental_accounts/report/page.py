"""A page as a list of blocks, rendered as one self-contained HTML file and as Markdown. All text is escaped here."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mental_accounts.markdown_text import LINKED, cell, paragraph, plain_text


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is the page's own."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    kind: str = "plain"
    """plain, headline, or warning."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header. The first column is text, the others are numbers unless `text` says otherwise."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    text: Sequence[int] = (0,)
    name: str = ""
    """The id of the table."""


@dataclass(frozen=True)
class Picture:
    """A figure: an SVG element for HTML, and for Markdown the path of an image, if there is one."""

    svg: str
    caption: str
    path: str = ""


@dataclass(frozen=True)
class Code:
    """Commands, to be copied."""

    text: str


@dataclass(frozen=True)
class Link:
    """A link to another file next to this one."""

    text: str
    target: str


Block = Heading | Text | Table | Picture | Code | Link

STYLE = """
:root{color-scheme:light dark;--ink:#1a1c20;--paper:#fff;--soft:#f1f3f5;--line:#d4d8dd;--quiet:#4f5661;--mark:#0b62a8;
--warn:#fff4d6}
@media (prefers-color-scheme:dark){:root{--ink:#e7e9ec;--paper:#15171a;--soft:#212429;--line:#3b4048;--quiet:#adb4bf;
--mark:#7cbcf5;--warn:#3a3013}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:62rem;color:var(--ink);background:var(--paper);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.25rem;margin-top:2.2rem;border-bottom:1px solid var(--line)}
h3{font-size:1.05rem;margin-top:1.6rem}
p.headline{font-size:1.1rem;padding:.7rem 1rem;background:var(--soft);border-left:4px solid var(--mark)}
p.warning{padding:.4rem 1rem;background:var(--warn)}
a{color:var(--mark)}
.scroll{overflow-x:auto;margin:1rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;min-width:100%}
p.caption{color:var(--quiet);font-size:.9rem;margin:1.4rem 0 -.6rem}
th,td{overflow-wrap:normal;padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th.t,td.t{text-align:left}
th{background:var(--soft)}
figure{margin:1rem 0}figure svg{width:100%;height:auto}
figcaption{color:var(--quiet);font-size:.9rem}
pre{background:var(--soft);padding:.7rem;overflow-x:auto;font-size:.85rem;white-space:pre-wrap;word-break:break-word}
@media print{body{max-width:none;font-size:11px}.scroll{overflow:visible}figure,table{break-inside:avoid}}
"""


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """One self-contained file: no scripts, no requests."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n"
        "</html>\n"
    )


def to_markdown(blocks: Sequence[Block]) -> str:
    """The same for a terminal or a repository."""
    return "\n\n".join(filter(None, (_markdown(block) for block in blocks))) + "\n"


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{escape(block.text)}</h{block.level}>"
    if isinstance(block, Text):
        kind = "" if block.kind == "plain" else f' class="{escape(block.kind)}"'
        return f"<p{kind}>{escape(block.text)}</p>"
    if isinstance(block, Picture):
        return f"<figure>{block.svg}<figcaption>{escape(block.caption)}</figcaption></figure>"
    if isinstance(block, Code):
        return f'<pre tabindex="0">{escape(block.text)}</pre>'
    if isinstance(block, Link):
        return f'<p><a href="{escape(block.target)}">{escape(block.text)}</a></p>'

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = [' class="t"' if place in block.text else "" for place in range(len(row))]
        scope = ' scope="col"' if tag == "th" else ""
        return "".join(f"<{tag}{scope}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True))

    name = f' id="{escape(block.name)}"' if block.name else ""
    caption = f'<p class="caption">{escape(block.caption)}</p>' if block.caption else ""
    rows = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in block.rows)
    return (
        f'{caption}<div class="scroll" tabindex="0" role="region" aria-label="{escape(block.caption or "table")}">'
        f"<table{name}><thead><tr>{cells('th', block.header)}</tr></thead><tbody>\n{rows}\n"
        "</tbody></table></div>"
    )


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {plain_text(block.text)}"
    if isinstance(block, Text):
        shown = paragraph(block.text)
        return f"**{shown}**" if block.kind == "headline" else f"> {shown}" if block.kind == "warning" else shown
    if isinstance(block, Picture):
        return f"![{plain_text(block.caption, LINKED)}]({block.path})" if block.path else ""
    if isinstance(block, Code):
        return "\n".join(f"    {line}" for line in block.text.splitlines())
    if isinstance(block, Link):
        return f"[{plain_text(block.text, LINKED)}]({block.target})"
    lines = [f"{paragraph(block.caption)}\n"] if block.caption else []
    lines.append("| " + " | ".join(map(cell, block.header)) + " |")
    lines.append("|" + "|".join("---" if place in block.text else "---:" for place in range(len(block.header))) + "|")
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in block.rows]
    return "\n".join(lines)

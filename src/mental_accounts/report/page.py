"""A page as a list of blocks, rendered as one self-contained HTML file and as Markdown. All text is escaped here."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
class Named:
    """A cell with a name for people, and the technical one beside it."""

    text: str
    name: str


@dataclass(frozen=True)
class Linked:
    """A cell that links to a file next to the page."""

    text: str
    target: str


Cell = str | Named | Linked


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header. The first column is text, the others are numbers unless `text` says otherwise."""

    header: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    text: Sequence[int] = (0,)
    name: str = ""
    """The id of the table."""


@dataclass(frozen=True)
class Picture:
    """A figure: SVG elements for HTML, side by side where there is room, and for Markdown the path of an image."""

    svgs: Sequence[str]
    caption: str
    path: str = ""
    """Of an image for Markdown, if there is one."""
    legend: Mapping[str, str] = field(default_factory=dict)
    """Colours by what they stand for."""


@dataclass(frozen=True)
class Code:
    """Commands, to be copied."""

    text: str


@dataclass(frozen=True)
class Details:
    """A long text that is closed at first."""

    summary: str
    text: str


@dataclass(frozen=True)
class Link:
    """A link to another file next to this one."""

    text: str
    target: str


Block = Heading | Text | Table | Picture | Code | Details | Link

STYLE = """
:root{color-scheme:light dark;--ink:#1a1c20;--paper:#fff;--soft:#f1f3f5;--line:#d4d8dd;--quiet:#4f5661;--mark:#0b62a8;
--warn:#fff4d6;--shade:#0004}
@media (prefers-color-scheme:dark){:root{--ink:#e7e9ec;--paper:#15171a;--soft:#212429;--line:#3b4048;--quiet:#adb4bf;
--mark:#7cbcf5;--warn:#3a3013;--shade:#fff5}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:76rem;color:var(--ink);background:var(--paper);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.25rem;margin-top:2.2rem;border-bottom:1px solid var(--line)}
h3{font-size:1.05rem;margin-top:1.6rem}
p.headline{font-size:1.1rem;padding:.7rem 1rem;background:var(--soft);border-left:4px solid var(--mark)}
p.warning{padding:.4rem 1rem;background:var(--warn)}
a{color:var(--mark)}
.scroll{overflow-x:auto;margin:1rem 0;background:
linear-gradient(to right,var(--paper) 1rem,transparent) left/3rem 100% no-repeat local,
linear-gradient(to left,var(--paper) 1rem,transparent) right/3rem 100% no-repeat local,
linear-gradient(to right,var(--shade),transparent) left/1rem 100% no-repeat scroll,
linear-gradient(to left,var(--shade),transparent) right/1rem 100% no-repeat scroll}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;min-width:100%}
p.caption{color:var(--quiet);font-size:.9rem;margin:1.4rem 0 -.6rem}
th,td{overflow-wrap:normal;padding:.3rem .5rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}
th.t,td.t{text-align:left}
th{background:var(--soft);vertical-align:bottom}
.n{white-space:nowrap}td .i{display:block;color:var(--quiet);font-size:.92em}
td.t:first-child{min-width:10rem}td.t:last-child{min-width:8rem}
code{display:block;color:var(--quiet);font-size:.85em;font-weight:normal}
p,li,figcaption{max-width:62rem}
figure{margin:1rem 0}figure svg{flex:1 1 18rem;min-width:0;width:100%;height:auto}
figure .row{display:flex;flex-wrap:wrap;gap:.5rem 1rem}
figcaption{color:var(--quiet);font-size:.9rem}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:0 0 .4rem;padding:0;list-style:none;font-size:.9rem}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border-radius:50%}
summary{cursor:pointer;padding:.2rem 0}
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
        entries = "".join(f'<li><i style="background:{c}"></i>{escape(name)}</li>' for name, c in block.legend.items())
        legend = f'<ul class="legend">{entries}</ul>' if entries else ""
        drawn = "".join(block.svgs)
        return (
            f'<figure>{legend}<div class="row">{drawn}</div><figcaption>{escape(block.caption)}</figcaption></figure>'
        )
    if isinstance(block, Code):
        return f'<pre tabindex="0">{escape(block.text)}</pre>'
    if isinstance(block, Details):
        return (
            f'<details><summary>{escape(block.summary)}</summary><pre tabindex="0">{escape(block.text)}</pre></details>'
        )
    if isinstance(block, Link):
        return f'<p><a href="{escape(block.target)}">{escape(block.text)}</a></p>'

    def cells(tag: str, row: Sequence[Cell]) -> str:
        kinds = [' class="t"' if place in block.text else "" for place in range(len(row))]
        scope = ' scope="col"' if tag == "th" else ""
        return "".join(
            f"<{tag}{scope}{kind}>{_html_cell(one, tag == 'td')}</{tag}>" for kind, one in zip(kinds, row, strict=True)
        )

    name = f' id="{escape(block.name)}"' if block.name else ""
    caption = f'<p class="caption">{escape(block.caption)}</p>' if block.caption else ""
    rows = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in block.rows)
    return (
        f'{caption}<div class="scroll" tabindex="0" role="region" aria-label="{escape(block.caption or "table")}">'
        f"<table{name}><thead><tr>{cells('th', block.header)}</tr></thead><tbody>\n{rows}\n"
        "</tbody></table></div>"
    )


def _html_cell(shown: Cell, is_value: bool) -> str:
    if isinstance(shown, Named):
        return f"{escape(shown.text)} <code>{breakable(escape(shown.name))}</code>"
    if isinstance(shown, Linked):
        return f'<a class="n" href="{escape(shown.target)}">{escape(shown.text)}</a>'
    estimate, found, interval = escape(shown).partition(" [")
    if found and is_value:
        return f'<span class="n">{estimate}</span> <span class="n i">[{interval}</span>'
    return breakable(escape(shown))


def breakable(escaped: str) -> str:
    """Long names of methods and metrics, with places where a line may end."""
    return re.sub(r"(?<=[A-Za-z0-9])([:=/_]|,(?! ))(?=[A-Za-z0-9])", r"\1<wbr>", escaped)


def _markdown_cell(shown: Cell) -> str:
    if isinstance(shown, Named):
        return cell(f"{shown.text} ({shown.name})")
    if isinstance(shown, Linked):
        return f"[{plain_text(shown.text, LINKED)}]({shown.target})"
    return cell(shown)


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
    if isinstance(block, Details):
        return f"{paragraph(block.summary)}\n\n    {block.text}"
    if isinstance(block, Link):
        return f"[{plain_text(block.text, LINKED)}]({block.target})"
    lines = [f"{paragraph(block.caption)}\n"] if block.caption else []
    lines.append("| " + " | ".join(map(_markdown_cell, block.header)) + " |")
    lines.append("|" + "|".join("---" if place in block.text else "---:" for place in range(len(block.header))) + "|")
    lines += ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in block.rows]
    return "\n".join(lines)

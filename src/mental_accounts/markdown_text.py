"""Escaping text from others for Markdown."""

import re

SPECIAL = re.compile(
    r"""[\\`*~$]                              # emphasis, code, mathematics
    | \](?=[(\[])                           # the end of a link's text
    | (?<![A-Za-z0-9])_ | _(?![A-Za-z0-9])  # emphasis, but not the names_of_things
    | (?<=:)// | (?<=www)\.                 # an address that would become a link
    """,
    re.VERBOSE,
)
"""Characters with a meaning in Markdown text."""
LINKED = re.compile(rf"{SPECIAL.pattern} | [\[\]]", re.VERBOSE)
"""The same in the text of a link or an image."""
BEGINNING = re.compile(r"(?:(?<=\d)[.)]|[-+#])(?=[-#\s]|$)|[>|=\[]")
"""Markup at the start of a paragraph: lists, headings, quotations, tables, link definitions."""


def plain_text(text: str, special: re.Pattern[str] = SPECIAL) -> str:
    """Text escaped for Markdown, on one line."""
    marked = special.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))
    return marked.replace("&", "&amp;").replace("<", "&lt;")


def paragraph(text: str) -> str:
    """A paragraph, whatever it begins with."""
    shown = plain_text(text)
    begun = len(shown) - len(shown.lstrip("0123456789"))
    found = BEGINNING.match(shown, begun)
    is_number = begun > 0 and found is not None and found[0] not in (".", ")")
    return shown if found is None or is_number else f"{shown[:begun]}\\{shown[begun:]}"


def cell(text: str) -> str:
    """A cell of a table."""
    return plain_text(text).replace("|", "\\|")

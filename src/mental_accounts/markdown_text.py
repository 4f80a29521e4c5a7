"""Text of strangers in Markdown: shown as it is, whatever marks it holds."""

import re

SPECIAL = re.compile(
    r"""[\\`*~$]                              # emphasis, code, mathematics
    | \](?=[(\[])                           # the end of a link's text
    | (?<![A-Za-z0-9])_ | _(?![A-Za-z0-9])  # emphasis, but not the names_of_things
    | (?<=:)// | (?<=www)\.                 # an address that would become a link
    """,
    re.VERBOSE,
)
"""What Markdown obeys within a text."""
LINKED = re.compile(rf"{SPECIAL.pattern} | [\[\]]", re.VERBOSE)
"""And within that of a link or a picture."""
BEGINNING = re.compile(r"(?:(?<=\d)[.)]|[-+#])(?=[-#\s]|$)|[>|=\[]")
"""What Markdown obeys where a paragraph begins: lists, headings, quotations, tables, definitions of links."""


def plain_text(text: str, special: re.Pattern[str] = SPECIAL) -> str:
    """Text that Markdown shows as it is, on one line."""
    marked = special.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))
    return marked.replace("&", "&amp;").replace("<", "&lt;")


def paragraph(text: str) -> str:
    """The same as a paragraph of its own, whatever it begins with."""
    shown = plain_text(text)
    begun = len(shown) - len(shown.lstrip("0123456789"))
    found = BEGINNING.match(shown, begun)
    is_number = begun > 0 and found is not None and found[0] not in (".", ")")
    return shown if found is None or is_number else f"{shown[:begun]}\\{shown[begun:]}"


def cell(text: str) -> str:
    """The same in a table."""
    return plain_text(text).replace("|", "\\|")

"""Pages that are partly generated: a script writes the text between two markers, and links to headings."""

import re


def between(page: str, begin: str, end: str, made: str) -> str:
    """The page with the text between two markers replaced."""
    if not 0 <= page.find(begin) < page.find(end):
        raise ValueError(f"the page needs the markers {begin} and {end}, in this order")
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{made}\n\n{end}{rest.partition(end)[2]}"


def anchor(heading: str, separator: str = "-") -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)

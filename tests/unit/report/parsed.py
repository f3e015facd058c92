"""A page as a parser sees it: elements with their attributes, text by section, scripts and styles."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Parsed(HTMLParser):
    """Parses at once; `broken` names the elements that were closed out of order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.broken: list[str] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []  # scripts and styles
        self.parts: dict[str, list[str]] = {}  # section's id → its texts
        self._open: list[str] = []
        self._section = "answer"
        self.feed(page)
        self.close()
        self.broken += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag == "section":
            self._section = found.get("aria-labelledby") or ""
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("script", "style"):
            self.raw.append((tag, found, ""))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.broken.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("script", "style"):
            tag, attributes, text = self.raw[-1]
            self.raw[-1] = (tag, attributes, text + data)
        else:
            self.parts.setdefault(self._section, []).append(data)

    @property
    def shape(self) -> Counter[tuple[str, tuple[str, ...]]]:
        """How often each element occurs with each set of attributes."""
        return Counter((tag, tuple(sorted(attributes))) for tag, attributes in self.elements)

    def text(self, section: str | None = None) -> str:
        """The visible text of a section, or of the page, with single ordinary spaces."""
        texts = self.parts.get(section, []) if section else [text for part in self.parts.values() for text in part]
        return " ".join(" ".join(texts).split())

    @property
    def policy(self) -> dict[str, list[str]]:
        """The content security policy by directive."""
        content = next(a["content"] for t, a in self.elements if t == "meta" and a.get("http-equiv"))
        return {words[0]: words[1:] for words in (part.split() for part in (content or "").split(";"))}

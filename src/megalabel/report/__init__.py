"""Pages for people: one self-contained HTML file, readable offline, on a phone and in the dark."""

from megalabel.report.page import Example, page

__all__ = ["Example", "page"]

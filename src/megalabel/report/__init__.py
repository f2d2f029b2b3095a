"""Pages for people: one self-contained HTML file, readable offline, on a phone and in the dark."""

from megalabel.report.page import Example, examples, page
from megalabel.report.writing import check_path, render, write

__all__ = ["Example", "check_path", "examples", "page", "render", "write"]

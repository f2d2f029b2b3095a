"""How items are described: the phrases, how often each is used, how sure each makes the labels.

Every phrase that bears on labels differs from all others, so that a text tells what was meant.
Probabilities are in percent.
"""

from __future__ import annotations

from typing import NamedTuple

# Sentences that say nothing about the labels.
ASIDES = (
    "It comes with a two-year guarantee.",
    "Delivered in plain recycled packaging.",
    "Wipe clean with a damp cloth.",
    "Each one is checked by hand before it leaves us.",
    "Colours may differ a little from the picture.",
    "A small batch arrives every month.",
    "It weighs less than you would expect.",
    "Instructions are in the box.",
    "Our customers rate it highly.",
    "Now in its third edition.",
    "The design won a regional prize.",
    "Free returns within thirty days.",
    "Made in small numbers by a family firm.",
    "Keep away from direct heat.",
    "A storage pouch is included.",
    "It needs no assembly.",
    "Ready to use straight from the box.",
    "Sold singly.",
    "Spare parts can be ordered for ten years.",
    "The edges are neatly finished.",
    "It is as quiet and plain as good things are.",
    "A fair price for something that lasts.",
    "Back in stock after a long wait.",
    "The pattern is printed without solvents.",
    "Dispatched within two working days.",
    "One size only.",
    "It takes up very little room.",
    "Tested for ten thousand uses.",
    "The maker's mark is on the underside.",
    "Please order early before the holidays.",
    "It looks better with age.",
    "Our own staff use it at home.",
)


class Cue(NamedTuple):
    """A way of saying something, how often it is used, and how sure it makes the labels."""

    share: int
    before: str
    after: str
    percent: tuple[int, ...]


class Title(NamedTuple):
    """A title: before, then maker and style (or style and maker), then after and a colour."""

    share: int
    before: str
    maker_first: bool
    between: str
    after: str
    percent: tuple[int, ...]


# How the title names the line. Percent: line, style, type, category, department; then the partner
# line; then the line, style and type of the cousin. Each value is at most that of its parent.
_IS = (86, 90, 93, 95, 97, 42, 22, 25, 30)
_PART = (34, 40, 48, 66, 82, 12, 8, 10, 14)
_LIKE = (20, 78, 87, 92, 95, 26, 6, 18, 24)
TITLES = (
    Title(28, "", True, " ", " in ", _IS),
    Title(22, "The ", True, " ", ", ", _IS),
    Title(18, "", True, " ", ", now in ", _IS),
    Title(6, "Care kit for the ", True, " ", ", ", _PART),
    Title(5, "Carry case for the ", True, " ", " in ", _PART),
    Title(5, "Replacement part for the ", True, " ", " in ", _PART),
    Title(8, "", False, " in the manner of ", ", ", _LIKE),
    Title(8, "", False, " inspired by ", " in ", _LIKE),
)
# How another line is mentioned. Percent: line, style, type, category, department.
OTHER_CUES = (
    Cue(30, "", "", ()),
    Cue(12, " Often bought together with the ", ".", (44, 48, 53, 60, 68)),
    Cue(12, " Many people order the ", " as well.", (44, 48, 53, 60, 68)),
    Cue(8, " It goes well with the ", ".", (20, 24, 29, 36, 45)),
    Cue(8, " Some use it beside the ", ".", (20, 24, 29, 36, 45)),
    Cue(10, " Not to be confused with the ", ".", ()),
    Cue(10, " It does not fit the ", ".", ()),
    Cue(10, " If you asked for the ", ", this is not the one.", ()),
)
# How a material is named. Percent: the material, its family.
MATERIAL_CUES = (
    Cue(26, "", "", ()),
    Cue(20, " Made of ", ".", (90, 94)),
    Cue(18, " The body is ", ".", (90, 94)),
    Cue(11, " With ", " details.", (42, 52)),
    Cue(10, " Trimmed with ", ".", (42, 52)),
    Cue(8, " Finished to look like ", ".", (8, 15)),
    Cue(7, " It has the feel of ", ".", (8, 15)),
)
# How a purpose is named. Percent: the purpose, its theme.
PURPOSE_CUES = (
    Cue(12, "", "", ()),
    Cue(15, " Designed for ", ".", (85, 91)),
    Cue(13, " Made with ", " in mind.", (85, 91)),
    Cue(12, " A sound choice for ", ".", (64, 74)),
    Cue(13, " It also suits ", ".", (46, 56)),
    Cue(12, " Handy for ", " too.", (46, 56)),
    Cue(12, " It may be used for ", ".", (18, 26)),
    Cue(11, " At a pinch it will do for ", ".", (18, 26)),
)
SECOND_PURPOSE_CUES = (
    Cue(50, "", "", ()),
    Cue(18, " Some like it for ", ".", (46, 56)),
    Cue(16, " Others keep it for ", ".", (18, 26)),
    Cue(16, " It is not meant for ", ".", ()),
)

"""The synthetic shop: its labels, how they hang together, how popular and how visible they are.

The labels form a forest. Products: department > category > type > style > line; a line is one
maker's version of a style ("Ashford Belmira compact garden chair"). Facets: material family >
material, and theme > purpose. Children are dealt to parents in turn (child i to parent i modulo the
number of parents), and lines are numbered by falling popularity, so every level inherits the long
tail of the lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.data.labelset import LabelSet
from megalabel.data.synthetic import phrases, words
from megalabel.data.synthetic.hashing import below, key, shuffled

_DEPARTMENTS = list(words.DEPARTMENTS.items())
_CATEGORIES = len(_DEPARTMENTS[0][1][1])  # of each department
_NOUNS = 6  # of each category, and facets of each group
_BRANDS = len(words.BRAND_BEGINNINGS) * len(words.BRAND_ENDINGS)
_BRAND_STRIDE = 1127  # shares no factor with the number of brands, so steps through all of them
_FAMILIES = list(words.MATERIALS)
_THEMES = list(words.PURPOSES)

MIN_LABELS = 200
MAX_LABELS = 20_000_000
CHILD_TABLE = 64  # a facet is picked by six random bits


class Shop:
    """All that the texts and labels of one synthetic corpus are drawn from.

    Parameters
    ----------
    texts : int
        How many texts the corpus has: expected counts, and so propensities, follow from it.
    labels : int
        How many labels, from 200 to 20 million.
    seed : int
        Decides which nouns, brands and facets are popular.
    removal : float
        How strongly labels go missing; see `propensities`.
    """

    def __init__(self, texts: int, labels: int, seed: int, removal: float) -> None:
        self.texts, self.seed, self.removal = texts, seed, removal
        self.departments = len(_DEPARTMENTS)
        self.categories = _clip(labels // 40, 16, self.departments * _CATEGORIES)
        self.types = _clip(labels // 20, 2 * self.categories, self.categories * _NOUNS)
        self.styles = _clip(labels // 16, self.types, self.types * len(words.MODIFIERS))
        self.groups = len(_FAMILIES) + len(_THEMES)
        self.facets = _clip(labels // 24 - self.groups, self.groups, self.groups * _NOUNS)
        counts = [self.departments, self.categories, self.types, self.styles]
        counts += [self.groups, self.facets]
        self.lines = labels - sum(counts)
        # the number of the first label of each level
        starts = np.cumsum([0, *counts]).tolist()
        self.category_start, self.type_start, self.style_start = starts[1:4]
        self.group_start, self.facet_start, self.line_start = starts[4:7]
        self._lay_out_words()
        # Zipf's law with a blunted head, and on top of it one text a line as far as half of the
        # texts reach; in integers, so that sums and draws are exact on every machine
        weights = (1 << 40) // (np.arange(self.lines, dtype=np.int64) + 2)
        uniform = min(self.lines, texts // 2)
        weights += int(weights.sum()) * uniform // (max(texts - uniform, 1) * self.lines)
        self.popularity = np.cumsum(weights)
        self._weights = weights

    def __len__(self) -> int:
        return int(self.line_start + self.lines)

    def _lay_out_words(self) -> None:
        """Put the word tables in this seed's order, as names by level."""
        order = shuffled(self.departments, key(self.seed, "departments"))
        departments = [_DEPARTMENTS[i] for i in order]
        self.department_names = [name for name, _ in departments]
        self.category_names: list[str] = []
        # facet groups that suit each category: two families, and four themes of its department
        families, themes, nouns = [], [], []
        for c in range(self.categories):
            suited, categories = departments[c % self.departments][1]
            turn = shuffled(_CATEGORIES, key(self.seed, "categories", c % self.departments))
            name = list(categories)[turn[c // self.departments]]
            letters, listed = categories[name]
            self.category_names.append(name)
            families.append([_FAMILIES.index(letter) for letter in letters])
            themes.append([len(_FAMILIES) + _THEMES.index(theme) for theme in suited])
            mixed = shuffled(_NOUNS, key(self.seed, "nouns", c))
            nouns.append([listed[i] for i in mixed])
        self.category_families, self.category_themes = np.array(families), np.array(themes)
        self.type_names = [
            nouns[t % self.categories][t // self.categories] for t in range(self.types)
        ]
        modifiers = [
            shuffled(len(words.MODIFIERS), key(self.seed, "modifiers", c))
            for c in range(self.categories)
        ]
        self.style_names = [
            f"{words.MODIFIERS[modifiers[t % self.categories][m]]} {self.type_names[t]}"
            for m, t in (divmod(s, self.types) for s in range(self.styles))
        ]
        children = [c for _, c in words.MATERIALS.values()] + list(words.PURPOSES.values())
        mixed_children = [
            [group[i] for i in shuffled(_NOUNS, key(self.seed, "facets", g))]
            for g, group in enumerate(children)
        ]
        self.facet_names = [
            mixed_children[f % self.groups][f // self.groups] for f in range(self.facets)
        ]

    @cached_property
    def facet_choice(self) -> np.ndarray:
        """For each group and each of 64 random values, the facet: 1st, 2nd, … as 1, 1/2, …"""
        table = np.empty((self.groups, CHILD_TABLE), np.int64)
        for group in range(self.groups):
            size = len(range(group, self.facets, self.groups))
            total = sum(Fraction(1, rank + 1) for rank in range(size))
            ends = accumulate(Fraction(1, rank + 1) / total for rank in range(size - 1))
            first = [int(end * CHILD_TABLE) for end in ends]
            ranks = np.searchsorted(first, np.arange(CHILD_TABLE), side="right")
            table[group] = group + ranks * self.groups
        return table

    # --- lines, by number from 0

    def makers(self, lines: np.ndarray) -> pa.Array:
        """Brand and series of each line. Within a style each line has another brand."""
        turn, style = np.divmod(lines, self.styles)
        modifier, of_type = np.divmod(style, self.types)
        # the same for all types of a category, so that a brand makes a family of products
        first = below(_BRANDS, key(self.seed, "brands"), of_type % self.categories, modifier)
        brand = (first + turn * _BRAND_STRIDE) % _BRANDS
        series = below(len(_SERIES), key(self.seed, "series"), lines)
        return join(_BRAND_NAMES.take(pa.array(brand)), " ", _SERIES.take(pa.array(series)))

    def ancestors(self, lines: np.ndarray) -> list[np.ndarray]:
        """The label numbers of each line and its style, type, category and department."""
        style = lines % self.styles
        of_type = style % self.types
        category = of_type % self.categories
        return [
            lines + self.line_start,
            style + self.style_start,
            of_type + self.type_start,
            category + self.category_start,
            category % self.departments,
        ]

    def partners(self, lines: np.ndarray) -> np.ndarray:
        """The line bought in place of each line: another maker's of the same style, or -1."""
        turn, style = np.divmod(lines, self.styles)
        partner = (turn ^ 1) * self.styles + style
        return np.where(partner < self.lines, partner, -1)

    def cousins(self, lines: np.ndarray) -> np.ndarray:
        """The line bought along with each line: the next type of its category, if there is one
        by the same maker and of the same modifier."""
        turn, style = np.divmod(lines, self.styles)
        modifier, of_type = np.divmod(style, self.types)
        after = of_type + self.categories
        after = np.where(after < self.types, after, of_type % self.categories)
        cousin_style = after + modifier * self.types
        cousin_style = np.where(cousin_style < self.styles, cousin_style, after)
        cousin = cousin_style + turn * self.styles
        return np.where(cousin < self.lines, cousin, cousin_style)

    # --- the labels

    @cached_property
    def parents(self) -> np.ndarray:
        """The parent of each label, -1 for roots."""
        parts = [
            np.full(self.departments, -1),
            np.arange(self.categories) % self.departments,
            self.category_start + np.arange(self.types) % self.categories,
            self.type_start + np.arange(self.styles) % self.types,
            np.full(self.groups, -1),
            self.group_start + np.arange(self.facets) % self.groups,
            self.style_start + np.arange(self.lines) % self.styles,
        ]
        return np.concatenate(parts).astype(np.int32)

    @cached_property
    def labels(self) -> LabelSet:
        """Ids, names and texts of all labels."""
        lines = np.arange(self.lines)
        styles = pa.array(self.style_names, pa.large_string())
        makers = self.makers(lines)
        line_styles = styles.take(pa.array(lines % self.styles))
        places = pa.array(
            [
                f"{self.category_names[s % self.types % self.categories]} in "
                f"{self.department_names[s % self.types % self.categories % self.departments]}"
                for s in range(self.styles)
            ],
            pa.large_string(),
        )
        groups = [name for name, _ in words.MATERIALS.values()] + _THEMES
        levels: list[tuple[str, pa.Array, pa.Array]] = [
            _level(
                "department", self.department_names,
                [f"{name}, a department of the shop." for name in self.department_names],
            ),
            _level(
                "category", self.category_names,
                [
                    f"{name}, a category of {self.department_names[c % self.departments]}."
                    for c, name in enumerate(self.category_names)
                ],
            ),
            _level(
                "type", [_capital(name) for name in self.type_names],
                [
                    f"Any kind of {name}, found under {places[t].as_py()}."
                    for t, name in enumerate(self.type_names)
                ],
            ),
            _level(
                "style", [_capital(name) for name in self.style_names],
                [
                    f"A choice of {name} by several makers, found under {places[s].as_py()}."
                    for s, name in enumerate(self.style_names)
                ],
            ),
            _level(
                "group", groups,
                [
                    f"{name}: {'things made of' if g < len(_FAMILIES) else 'things for'} "
                    f"{', '.join(self.facet_names[g :: self.groups])}."
                    for g, name in enumerate(groups)
                ],
            ),
            _level(
                "facet", [_capital(name) for name in self.facet_names],
                [
                    f"Things made of {name} ({groups[f % self.groups].lower()})."
                    if f % self.groups < len(_FAMILIES)
                    else f"Things for {name} ({groups[f % self.groups].lower()})."
                    for f, name in enumerate(self.facet_names)
                ],
            ),
            (
                "line",
                join(makers, " ", line_styles),
                join(
                    "The ", line_styles, " made by ", makers, ", found under ",
                    places.take(pa.array(lines % self.styles)), ".",
                ),
            ),
        ]  # fmt: skip
        ids = [
            join(f"{kind}-", pa.array(np.arange(1, len(names) + 1)).cast(pa.large_string()))
            for kind, names, _ in levels
        ]
        return LabelSet(
            pa.concat_arrays(ids),
            pa.concat_arrays([names for _, names, _ in levels]),
            pa.concat_arrays([texts for _, _, texts in levels]),
        )

    @cached_property
    def expected_counts(self) -> np.ndarray:
        """How many texts are expected to carry each label because they name it (in float64).

        Partners and cousins, which no text names, are left out: this is the popularity that
        propensities depend on, not the sum of the probabilities.
        """
        named = _mean_percent([(t.share, t.percent) for t in phrases.TITLES], 5)
        other = _mean_percent([(c.share, c.percent) for c in phrases.OTHER_CUES], 5)
        total = int(self.popularity[-1])
        weights, lines = self._weights, np.ones(self.lines, np.int64)
        by_level = []
        for level, width in enumerate(
            [self.lines, self.styles, self.types, self.categories, self.departments]
        ):
            weights, lines = _dealt(weights, width), _dealt(lines, width)
            by_level.append(
                self.texts
                * (named[level] * (weights / total) + other[level] * (lines / self.lines))
            )
            if width == self.categories:
                category_share = weights / total
        groups, facets = np.zeros(self.groups), np.zeros(self.facets)
        material = _mean_percent([(c.share, c.percent) for c in phrases.MATERIAL_CUES], 2)
        purpose = _mean_percent([(c.share, c.percent) for c in phrases.PURPOSE_CUES], 2)
        second = _mean_percent([(c.share, c.percent) for c in phrases.SECOND_PURPOSE_CUES], 2)
        purpose = [a + b for a, b in zip(purpose, second, strict=True)]
        for c in range(self.categories):
            suited = [
                (g, share / 8, material)
                for g, share in zip(self.category_families[c], (5, 3), strict=True)
            ]
            suited += [(g, 1 / 4, purpose) for g in self.category_themes[c]]
            for g, share, (of_facet, of_group) in suited:
                mass = self.texts * category_share[c] * share
                groups[g] += mass * of_group
                for facet, slots in zip(
                    *np.unique(self.facet_choice[g], return_counts=True), strict=True
                ):
                    facets[facet] += mass * of_facet * (slots / CHILD_TABLE)
        line, style, of_type, category, department = by_level
        return np.concatenate([department, category, of_type, style, groups, facets, line])

    @cached_property
    def propensities(self) -> np.ndarray:
        """P(observed | relevant) of each label (Jain, Prabhu, Varma 2016, a = 1/2, b = 0.4).

        p = 1 / (1 + C / sqrt(count + b)), C = removal (ln texts - 1) sqrt(b + 1). The exponent 1/2
        is that of the Wikipedia data sets, and a square root is exact where a power is not.
        """
        # correctly rounded, unlike math.log, and whatever precision the caller has set
        logarithm = float(Context(prec=28).ln(Decimal(self.texts)))
        constant = self.removal * max(logarithm - 1.0, 0.0) * float(np.sqrt(1.4))
        return np.asarray(1.0 / (1.0 + constant / np.sqrt(self.expected_counts + 0.4)))


def _clip(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _capital(name: str) -> str:
    return name[0].upper() + name[1:]


def _dealt(values: np.ndarray, width: int) -> np.ndarray:
    """The sum of every width-th value: what `width` parents get when children are dealt out."""
    padded = np.zeros(-(-len(values) // width) * width, np.int64)
    padded[: len(values)] = values
    return np.asarray(padded.reshape(-1, width).sum(axis=0))


def _mean_percent(cues: Sequence[tuple[int, tuple[int, ...]]], levels: int) -> list[float]:
    """The probability of each level, averaged over how often each cue is used."""
    total = sum(share for share, _ in cues)
    return [
        sum(share * percent[level] for share, percent in cues if percent) / (100 * total)
        for level in range(levels)
    ]


def _level(kind: str, names: list[str], texts: list[str]) -> tuple[str, pa.Array, pa.Array]:
    return kind, pa.array(names, pa.large_string()), pa.array(texts, pa.large_string())


def join(*columns: pa.Array | str) -> pa.Array:
    """Columns and constants put together row by row."""
    scalars = [pa.scalar(c, pa.large_string()) if isinstance(c, str) else c for c in columns]
    return pc.binary_join_element_wise(*scalars, pa.scalar("", pa.large_string()))


def _compounds(beginnings: Sequence[str], endings: Sequence[str]) -> pa.Array:
    return pa.array([b + e for b in beginnings for e in endings], pa.large_string())


_BRAND_NAMES = _compounds(words.BRAND_BEGINNINGS, words.BRAND_ENDINGS)
_SERIES = _compounds(words.SERIES_BEGINNINGS, words.SERIES_ENDINGS)

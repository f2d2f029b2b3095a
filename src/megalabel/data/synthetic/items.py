"""Items of the shop: what each text says, how it says it, and what labels follow from that.

A text is written from facts (which line, which material, which purposes, by which cues). All facts
that bear on labels can be read off the text, so P(label | text) is a function of the facts:

- A mention gives each label of its chain (line, style, type, …) the probability of its cue.
- One uniform number a mention decides its whole chain: a label is relevant where the number lies
  below its probability. Parents have at least the probability of their children, so a child never
  comes without its parent.
- Where several mentions of a text give the same label, each decides on its own, and the
  probability is that of any of them: p + (1 - p) q.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from megalabel.data.synthetic import phrases, words
from megalabel.data.synthetic.hashing import below, bits, key, uniform
from megalabel.data.synthetic.shop import CHILD_TABLE, Shop, join

_Cues: TypeAlias = Sequence[phrases.Cue] | Sequence[phrases.Title]


class Items:
    """The facts of some rows of a corpus.

    Parameters
    ----------
    shop : Shop
    rows : int64 array
        Row numbers; each row's facts depend on its number and the seed alone.
    """

    def __init__(self, shop: Shop, rows: np.ndarray) -> None:
        self.shop, self.rows = shop, rows
        position = bits(self._key("line"), rows) % np.uint64(shop.popularity[-1])
        self.line = np.searchsorted(shop.popularity, position.astype(np.int64), side="right")
        self.title = self._cue("title", phrases.TITLES)
        # any other line, all alike: it lifts the rare ones
        away = 1 + self._below(shop.lines - 1, "other")
        self.other = (self.line + away) % shop.lines
        self.other_cue = self._cue("other cue", phrases.OTHER_CUES)
        category = self.line % shop.styles % shop.types % shop.categories
        family = (self._below(8, "family") >= 5).astype(np.int64)
        self.material = self._facet("material", shop.category_families[category, family])
        self.material_cue = self._cue("material cue", phrases.MATERIAL_CUES)
        theme = self._below(4, "theme")
        self.purpose = self._facet("purpose", shop.category_themes[category, theme])
        self.purpose_cue = self._cue("purpose cue", phrases.PURPOSE_CUES)
        # of another theme, so that no purpose is named twice
        self.second = self._facet("second", shop.category_themes[category, (theme + 1) % 4])
        self.second_cue = self._cue("second cue", phrases.SECOND_PURPOSE_CUES)

    def _key(self, name: str, draw: int = 0) -> int:
        return key(self.shop.seed, name, draw)

    def _below(self, n: int, name: str) -> np.ndarray:
        return below(n, self._key(name), self.rows)

    def _cue(self, name: str, cues: _Cues) -> np.ndarray:
        turns = np.repeat(np.arange(len(cues)), [cue.share for cue in cues])
        return np.asarray(turns[self._below(len(turns), name)])

    def _facet(self, name: str, group: np.ndarray) -> np.ndarray:
        return np.asarray(self.shop.facet_choice[group, self._below(CHILD_TABLE, name)])

    def texts(self) -> pa.Array:
        """The texts: a title, and a few sentences."""
        shop = self.shop
        styles = pa.array(shop.style_names, pa.large_string())
        capital_styles = pa.array([s[0].upper() + s[1:] for s in shop.style_names], styles.type)
        facets = pa.array([*shop.facet_names], pa.large_string())
        makers, style = shop.makers(self.line), pa.array(self.line % shop.styles)
        maker_first = pa.array(np.array([t.maker_first for t in phrases.TITLES])[self.title])
        other = join(shop.makers(self.other), " ", styles.take(pa.array(self.other % shop.styles)))
        aside = self._below(len(phrases.ASIDES), "aside")
        # half of the texts have a second aside, never the same again
        more = (aside + 1 + self._below(len(phrases.ASIDES) - 1, "second aside")) % len(
            phrases.ASIDES
        )
        more = np.where(self._below(2, "asides") == 1, more, len(phrases.ASIDES))
        asides = [" " + sentence for sentence in phrases.ASIDES] + [""]
        return join(
            _pick([t.before for t in phrases.TITLES], self.title),
            pc.if_else(maker_first, makers, capital_styles.take(style)),
            _pick([t.between for t in phrases.TITLES], self.title),
            pc.if_else(maker_first, styles.take(style), makers),
            _pick([t.after for t in phrases.TITLES], self.title),
            _pick(words.COLOURS, self._below(len(words.COLOURS), "colour")),
            ".",
            *_sentence(phrases.MATERIAL_CUES, self.material_cue, facets, self.material),
            *_sentence(phrases.PURPOSE_CUES, self.purpose_cue, facets, self.purpose),
            _pick(asides, aside),
            *_sentence(phrases.SECOND_PURPOSE_CUES, self.second_cue, facets, self.second),
            *_sentence(phrases.OTHER_CUES, self.other_cue, other),
            _pick(asides, more),
        )

    def labels(self, draw: int) -> tuple[csr_matrix, csr_matrix]:
        """The true probabilities (float64), and one draw of the relevant labels from them."""
        shop = self.shop
        partner, cousin = shop.partners(self.line), shop.cousins(self.line)
        main = [
            *shop.ancestors(self.line),
            np.where(partner >= 0, partner + shop.line_start, -1),
            *shop.ancestors(cousin)[:3],
        ]
        mentions: list[tuple[str, list[np.ndarray], _Cues, np.ndarray]] = [
            ("title", main, phrases.TITLES, self.title),
            ("other", shop.ancestors(self.other), phrases.OTHER_CUES, self.other_cue),
            (
                "material",
                self._facet_chain(self.material),
                phrases.MATERIAL_CUES,
                self.material_cue,
            ),
            ("purpose", self._facet_chain(self.purpose), phrases.PURPOSE_CUES, self.purpose_cue),
            (
                "second",
                self._facet_chain(self.second),
                phrases.SECOND_PURPOSE_CUES,
                self.second_cue,
            ),
        ]
        columns = sum(len(chain) for _, chain, _, _ in mentions)
        label = np.empty((columns, len(self.rows)), np.int32)
        probability = np.empty(label.shape)
        relevant = np.empty(label.shape, bool)
        column = 0
        for name, chain, cues, cue in mentions:
            luck = uniform(self._key(f"luck of {name}", draw), self.rows)
            for level, numbers in enumerate(chain):
                table = [c.percent[level] / 100 if c.percent else 0.0 for c in cues]
                given = np.array(table)[cue]
                label[column] = np.where(given > 0, numbers, -1)
                probability[column] = given
                relevant[column] = luck < given
                column += 1
        return self._merged(label, probability, relevant)

    def _facet_chain(self, facet: np.ndarray) -> list[np.ndarray]:
        shop = self.shop
        return [facet + shop.facet_start, facet % shop.groups + shop.group_start]

    def _merged(
        self, label: np.ndarray, probability: np.ndarray, relevant: np.ndarray
    ) -> tuple[csr_matrix, csr_matrix]:
        """Labels in order within each row, those given by several mentions once; -1 is none."""
        order = np.argsort(label, axis=0, kind="stable")
        label = np.take_along_axis(label, order, 0)
        probability = np.take_along_axis(probability, order, 0)
        relevant = np.take_along_axis(relevant, order, 0)
        kept = label >= 0
        for i in range(1, len(label)):
            again = (label[i] == label[i - 1]) & kept[i]
            before = np.where(again, probability[i - 1], 0.0)
            probability[i] = before + (1.0 - before) * probability[i]
            relevant[i] |= again & relevant[i - 1]
            kept[i - 1] &= ~again
        shape = (len(self.rows), len(self.shop))
        return (
            _csr(kept, label, probability, shape),
            _csr(kept & relevant, label, np.ones(label.shape, np.float32), shape),
        )

    def observed(self, complete: csr_matrix, draw: int) -> csr_matrix:
        """The relevant labels that are left when each is kept with its propensity."""
        rows = np.repeat(self.rows, np.diff(complete.indptr))
        luck = uniform(self._key("removal", draw), rows, complete.indices)
        kept = luck < self.shop.propensities[complete.indices]
        indptr = np.concatenate([[0], np.cumsum(kept)])[complete.indptr]
        return csr_matrix((complete.data[kept], complete.indices[kept], indptr), complete.shape)


def _pick(phrases: Sequence[str], which: np.ndarray) -> pa.Array:
    return pa.array(phrases, pa.large_string()).take(pa.array(which))


def _sentence(
    cues: Sequence[phrases.Cue], cue: np.ndarray, things: pa.Array, which: np.ndarray | None = None
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """A sentence in three columns; a cue without words leaves all of them empty."""
    thing = things if which is None else things.take(pa.array(which))
    silent = pa.array(np.array([not c.before for c in cues])[cue])
    return (
        _pick([c.before for c in cues], cue),
        pc.if_else(silent, pa.scalar("", pa.large_string()), thing),
        _pick([c.after for c in cues], cue),
    )


def _csr(
    kept: np.ndarray, label: np.ndarray, data: np.ndarray, shape: tuple[int, int]
) -> csr_matrix:
    """A matrix from (column, row) grids whose labels rise along each row."""
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=0))])
    return csr_matrix((data.T[kept.T], label.T[kept.T], indptr), shape)

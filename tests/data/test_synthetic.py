"""The synthetic corpus: the same everywhere, readable, and true to what it says of itself."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.sparse import csr_matrix

from megalabel.data.synthetic import Synthetic, generate, phrases, stream, words
from megalabel.errors import ParameterError


@pytest.fixture(scope="module")
def shop() -> Synthetic:
    return generate(texts=4000, labels=1000)


def fingerprint(synthetic: Synthetic) -> str:
    """A checksum of everything in a corpus."""
    digest = hashlib.sha256()
    corpus = synthetic.corpus
    for strings in (corpus.texts, corpus.ids, corpus.labels.ids, corpus.labels.names):
        digest.update("\n".join(strings.to_pylist()).encode())
    digest.update("\n".join(corpus.labels.texts.to_pylist()).encode())
    for matrix in (corpus.targets, synthetic.complete, synthetic.probabilities):
        digest.update(matrix.indptr.astype("<i8").tobytes())
        digest.update(matrix.indices.astype("<i8").tobytes())
        digest.update(matrix.data.astype("<f8").tobytes())
    digest.update(synthetic.propensities.astype("<f8").tobytes())
    digest.update(synthetic.parents.astype("<i8").tobytes())
    return digest.hexdigest()


def hits(ranking_ids: np.ndarray, truth: csr_matrix) -> float:
    """The share of ranked labels that are true."""
    rows = np.repeat(np.arange(len(ranking_ids)), ranking_ids.shape[1])
    return float(np.asarray(truth[rows, ranking_ids.ravel()]).mean())


class TestTheSameEverywhere:
    def test_checksum_is_the_one_of_every_machine(self) -> None:
        # a change here changes every corpus ever generated: only with a note in the changelog
        expected = "c4c6bfcdd1c6250c74deeff0bab5d3e8dc50f566813a3ac3348293a05991e1d6"
        assert fingerprint(generate(texts=500, labels=300, seed=7)) == expected

    def test_same_seed_same_corpus(self, shop: Synthetic) -> None:
        assert fingerprint(generate(texts=4000, labels=1000)) == fingerprint(shop)

    def test_another_seed_gives_other_texts_and_labels(self, shop: Synthetic) -> None:
        other = generate(texts=4000, labels=1000, seed=1).corpus
        assert other.texts[:10] != shop.corpus.texts[:10]
        assert other.labels.names != shop.corpus.labels.names

    @pytest.mark.parametrize("batch", [1, 7, 64, 1000])
    def test_rows_do_not_depend_on_the_batch(self, batch: int) -> None:
        whole = generate(texts=130, labels=200, seed=3)
        first = 0
        for part in stream(texts=130, labels=200, seed=3, batch=batch):
            rows = whole[first : first + len(part)]
            assert fingerprint(part) == fingerprint(rows)
            first += len(part)
        assert first == 130

    def test_generate_joins_several_batches(self) -> None:
        # more texts than one batch of the default size
        parts = stream(texts=60_000, labels=200)
        sizes = [len(part) for part in parts]
        whole = generate(texts=60_000, labels=200)
        assert len(sizes) > 1
        assert len(whole) == sum(sizes) == len(whole.corpus.ids)
        last = next(stream(texts=60_000, labels=200, start=59_990))
        assert fingerprint(whole[59_990:]) == fingerprint(last)

    def test_workers_can_share_the_rows(self) -> None:
        whole = generate(texts=100, labels=200)
        (middle,) = stream(texts=100, labels=200, start=30, stop=50)
        assert fingerprint(middle) == fingerprint(whole[30:50])
        assert middle.corpus.ids[0].as_py() == "30"

    def test_another_draw_keeps_the_texts(self, shop: Synthetic) -> None:
        again = generate(texts=4000, labels=1000, draw=1)
        assert again.corpus.texts == shop.corpus.texts
        assert (again.probabilities != shop.probabilities).nnz == 0
        assert (again.complete != shop.complete).nnz > 0


class TestTheStatedProbabilities:
    DRAWS = 300

    @pytest.fixture(scope="class")
    def draws(self) -> list[Synthetic]:
        return [generate(texts=150, labels=200, draw=draw) for draw in range(self.DRAWS)]

    def test_labels_are_relevant_as_often_as_stated(self, draws: list[Synthetic]) -> None:
        probability = draws[0].probabilities
        count = csr_matrix(probability.shape)
        for draw in draws:
            count += draw.complete
        p, seen = probability.toarray(), count.toarray()
        assert not seen[p == 0].any()
        inside = (p > 0) & (p < 1)
        z = (seen - self.DRAWS * p)[inside] / np.sqrt(self.DRAWS * p * (1 - p))[inside]
        # some two thousand cells: mean square 1 within four standard errors, no wild value
        assert abs((z**2).mean() - 1) < 4 * np.sqrt(2 / len(z)) + 0.05
        assert np.abs(z).max() < 6

    def test_labels_are_observed_as_often_as_stated(self, draws: list[Synthetic]) -> None:
        relevant = sum(np.asarray(d.complete.sum(axis=0)).ravel() for d in draws)
        observed = sum(np.asarray(d.corpus.targets.sum(axis=0)).ravel() for d in draws)
        p = draws[0].propensities
        seen = relevant > 0
        z = (observed - relevant * p)[seen] / np.sqrt(relevant * p * (1 - p))[seen]
        assert np.abs(z).max() < 5
        assert abs((z**2).mean() - 1) < 4 * np.sqrt(2 / len(z))

    def test_labels_go_missing_independently(self, draws: list[Synthetic]) -> None:
        # whether a text's line is observed says nothing of whether its department is
        both = []
        for draw in draws:
            roots = draw.parents[draw.complete.indices] < 0
            kept = np.isin(_cells(draw.complete), _cells(draw.corpus.targets))
            residual = kept - draw.propensities[draw.complete.indices]
            rows = np.repeat(np.arange(len(draw)), np.diff(draw.complete.indptr))
            of_roots = np.bincount(rows[roots], residual[roots], minlength=len(draw))
            of_rest = np.bincount(rows[~roots], residual[~roots], minlength=len(draw))
            both.append(of_roots * of_rest)
        product = np.concatenate(both)
        assert abs(product.mean()) < 4 * product.std() / np.sqrt(len(product))

    def test_observed_labels_are_relevant(self, shop: Synthetic) -> None:
        targets = shop.corpus.targets
        assert targets.multiply(shop.complete).nnz == targets.nnz
        assert shop.complete.multiply(shop.probabilities > 0).nnz == shop.complete.nnz
        assert 0 < targets.nnz < shop.complete.nnz
        assert set(targets.data) == set(shop.complete.data) == {1.0}

    def test_nothing_goes_missing_without_removal(self) -> None:
        kept = generate(texts=300, labels=200, removal=0)
        assert (kept.propensities == 1).all()
        assert (kept.corpus.targets != kept.complete).nnz == 0

    def test_full_removal_follows_the_published_law(self) -> None:
        # departments and facets come from being named alone, so their counts are as expected
        full = generate(texts=20_000, labels=1000, removal=1)
        ids = full.corpus.labels.ids
        named = pc.or_(pc.starts_with(ids, "department"), pc.starts_with(ids, "facet"))
        named = np.flatnonzero(named.to_numpy(False))
        count = np.asarray(full.probabilities.sum(axis=0)).ravel()[named]
        law = 1 / (1 + (np.log(20_000) - 1) * np.sqrt(1.4) / np.sqrt(count + 0.4))
        np.testing.assert_allclose(full.propensities[named], law, rtol=0.05)

    def test_rare_labels_go_missing_more(self, shop: Synthetic) -> None:
        count = np.asarray(shop.probabilities.sum(axis=0)).ravel()
        order = np.argsort(count)
        lowest, highest = shop.propensities[order[:100]], shop.propensities[order[-100:]]
        assert lowest.max() < highest.min()

    def test_a_text_says_what_its_probabilities_are(self, shop: Synthetic) -> None:
        for row in range(300):
            stated = shop.probabilities[row]
            read = _read(shop.corpus.texts[row].as_py(), shop)
            stored = dict(zip(stated.indices.tolist(), stated.data.tolist(), strict=True))
            assert read.keys() <= stored.keys()
            for label, probability in read.items():
                # a cousin that the text also names has a little more
                assert stored[label] >= probability - 1e-12
            equal = sum(abs(stored[label] - p) < 1e-12 for label, p in read.items())
            assert equal >= len(read) - 3

    def test_equal_mentions_mean_equal_probabilities(self) -> None:
        # no label hangs on anything but the words: phrases that differ in meaning differ in form
        cues = [phrases.OTHER_CUES, phrases.MATERIAL_CUES]
        cues += [phrases.PURPOSE_CUES, phrases.SECOND_PURPOSE_CUES]
        forms = [(c.before, c.after) for table in cues for c in table if c.before]
        assert len(forms) == len(set(forms))
        titles = [(t.before, t.between, t.after) for t in phrases.TITLES]
        assert len(titles) == len(set(titles))


class TestTheHierarchy:
    def test_parents_are_as_likely_as_their_children(self, shop: Synthetic) -> None:
        p = shop.probabilities.toarray()
        child = np.flatnonzero(shop.parents >= 0)
        assert (p[:, child] <= p[:, shop.parents[child]]).all()

    def test_a_relevant_label_has_a_relevant_parent(self, shop: Synthetic) -> None:
        y = shop.complete.toarray()
        child = np.flatnonzero(shop.parents >= 0)
        assert (y[:, child] <= y[:, shop.parents[child]]).all()

    @pytest.mark.parametrize("labels", [200, 333, 1000, 20_000])
    def test_is_a_forest_of_five_levels(self, labels: int) -> None:
        parents = generate(texts=10, labels=labels).parents
        depth = np.zeros(labels, int)
        level = np.arange(labels)
        while (level >= 0).any():
            depth += level >= 0
            level = np.where(level >= 0, parents[level], -1)
        assert set(depth) == {1, 2, 3, 4, 5}
        assert ((parents >= -1) & (parents < np.arange(labels))).all()
        # every inner label has a child
        assert np.isin(np.flatnonzero((depth > 2) & (depth < 5)), parents).all()

    def test_lines_come_in_pairs(self, shop: Synthetic) -> None:
        # texts are tagged with their line's partner, which they do not name, when the line is
        y = shop.complete[:, _lines(shop)].astype(np.float64)
        together = (y.T @ y).toarray()
        alone = np.diag(together).copy()
        np.fill_diagonal(together, 0)
        popular = alone > 30
        assert (together[popular].max(axis=1) / alone[popular]).mean() > 0.2


class TestTheTail:
    @pytest.mark.parametrize(
        ("texts", "labels"), [(10_000, 1000), (20_000, 2000), (100_000, 10_000)]
    )
    def test_half_of_the_labels_and_more_have_one_to_five_texts(
        self, texts: int, labels: int
    ) -> None:
        counts = np.concatenate([[0], generate(texts, labels).corpus.label_counts])[1:]
        assert 0.45 < np.mean((counts >= 1) & (counts <= 5)) < 0.85
        assert np.mean(counts == 0) < 0.2
        assert counts.max() > texts / 20

    def test_popularity_falls_like_zipf(self) -> None:
        # lines that are items' own, by falling popularity: 1 / (rank + 2) where it is well above 1
        shop = generate(50_000, 2000)
        own = np.bincount(shop.probabilities.indices, shop.probabilities.data >= 0.86)
        ranks = np.arange(100)
        counts = own[_lines(shop)[ranks]]
        slope = np.polyfit(np.log(ranks + 2), np.log(counts), 1)[0]
        assert slope == pytest.approx(-1, abs=0.1)


class TestTheWords:
    def test_texts_are_readable(self, shop: Synthetic) -> None:
        for text in shop.corpus.texts.to_pylist():
            assert re.fullmatch(r"[A-Z][^{}]*\.", text), text
            assert not re.search(r"  |\s[.,]|\.\.|,,|[^.]$", text), text
            assert all(s[0].isupper() for s in text.split(". ")), text
            assert 5 <= len(text.split()) <= 80, text

    def test_texts_hardly_repeat(self, shop: Synthetic) -> None:
        assert len(pc.unique(shop.corpus.texts)) > 0.99 * len(shop)

    @pytest.mark.parametrize("labels", [200, 1000, 2000, 50_000])
    def test_label_names_are_distinct_and_readable(self, labels: int) -> None:
        _check_names(generate(texts=10, labels=labels), labels)

    @pytest.mark.slow
    def test_a_million_labels(self) -> None:
        million = next(stream(texts=2_000_000, labels=1_000_000, batch=20_000))
        _check_names(million, 1_000_000)
        assert million.probabilities.indices.max() > 900_000

    @pytest.mark.slow
    def test_the_largest_label_set(self) -> None:
        largest = next(stream(texts=10_000_000, labels=10_000_000, batch=1000))
        assert len(pc.unique(largest.corpus.labels.names)) == 10_000_000

    def test_word_tables_are_whole(self) -> None:
        nouns = [
            noun
            for _, categories in words.DEPARTMENTS.values()
            for _, listed in categories.values()
            for noun in listed
        ]
        assert len(nouns) == len(set(nouns)) == 480
        for themes, categories in words.DEPARTMENTS.values():
            assert len(set(themes)) == 4
            assert set(themes) <= set(words.PURPOSES)
            assert len(categories) == 5
            for letters, listed in categories.values():
                assert len(set(letters)) == 2
                assert set(letters) <= set(words.MATERIALS)
                assert len(listed) == 6
        brands = {b + e for b in words.BRAND_BEGINNINGS for e in words.BRAND_ENDINGS}
        assert len(brands) == 48 * 40
        for table in (phrases.TITLES, phrases.OTHER_CUES, phrases.MATERIAL_CUES):
            assert sum(cue.share for cue in table) == 100
        for table in (phrases.PURPOSE_CUES, phrases.SECOND_PURPOSE_CUES):
            assert sum(cue.share for cue in table) == 100


class TestTheBestRanking:
    def test_hits_as_often_as_its_probabilities_say(self, shop: Synthetic) -> None:
        best = shop.best(5)
        expected = float(best.scores.mean())
        assert hits(best.ids, shop.complete) == pytest.approx(expected, abs=0.015)
        best = shop.best(5, observed=True)
        assert hits(best.ids, shop.corpus.targets) == pytest.approx(
            float(best.scores.mean()), abs=0.015
        )

    def test_leads_with_the_likeliest_label(self, shop: Synthetic) -> None:
        likeliest = np.asarray(shop.probabilities.max(axis=1).todense()).ravel()
        np.testing.assert_array_equal(shop.best(1).scores[:, 0], likeliest.astype(np.float32))

    def test_can_be_neared_but_not_met_by_neighbours(self) -> None:
        text = pytest.importorskip("sklearn.feature_extraction.text")
        shop = generate(texts=6000, labels=600)
        train, test = shop[:5000], shop[5000:]
        vectorizer = text.TfidfVectorizer(sublinear_tf=True)
        known = vectorizer.fit_transform(train.corpus.texts.to_pylist())
        near = (vectorizer.transform(test.corpus.texts.to_pylist()) @ known.T).toarray()
        nearest = np.argpartition(-near, 20, axis=1)[:, :20]
        votes = csr_matrix(
            (np.take_along_axis(near, nearest, 1).ravel(), nearest.ravel(),
             np.arange(0, 20 * len(test) + 1, 20)), near.shape,
        ) @ train.corpus.targets  # fmt: skip
        ranked = np.argsort(-votes.toarray(), axis=1, kind="stable")
        for k in (1, 5):
            mine = hits(ranked[:, :k], test.corpus.targets)
            best = hits(test.best(k, observed=True).ids, test.corpus.targets)
            assert 0.6 < mine / best < 0.95


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": 199},
        {"labels": 20_000_001},
        {"texts": 0},
        {"seed": -1},
        {"removal": -0.1},
        {"removal": float("nan")},
        {"draw": 0.5},
    ],
)
def test_says_what_a_parameter_may_be(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(ParameterError, match=f"{name} of a synthetic corpus must be"):
        generate(**wrong)  # type: ignore[arg-type]


def test_rows_can_be_taken(shop: Synthetic) -> None:
    some = shop[np.array([5, 2])]
    assert some.corpus.texts.to_pylist() == [shop.corpus.texts[i].as_py() for i in (5, 2)]
    assert (some.complete != shop.complete[[5, 2]]).nnz == 0
    assert some.corpus.source["seed"] == 0


def _lines(synthetic: Synthetic) -> np.ndarray:
    return np.flatnonzero(pc.starts_with(synthetic.corpus.labels.ids, "line").to_numpy(False))


def _cells(matrix: csr_matrix) -> np.ndarray:
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows * matrix.shape[1] + matrix.indices


def _check_names(synthetic: Synthetic, labels: int) -> None:
    names = synthetic.corpus.labels.names
    assert len(names) == labels
    for column in (names, synthetic.corpus.labels.ids, synthetic.corpus.labels.texts):
        assert len(pc.unique(column)) == labels
    sample = names.take(pa.array(np.linspace(0, labels - 1, 500).astype(int))).to_pylist()
    for name in sample:
        assert re.fullmatch(r"[A-Z][A-Za-z'-]*( [A-Za-z'-]+)*", name), name


def _read(text: str, shop: Synthetic) -> dict[int, float]:
    """What a reader of a text gathers: the probabilities of the labels it names."""
    labels, found = shop.corpus.labels, {}

    def note(label: int, percent: tuple[int, ...]) -> None:
        for value in percent:
            found[label] = 1 - (1 - found.get(label, 0.0)) * (1 - value / 100)
            label = int(shop.parents[label])

    title, _, rest = text.partition(". ")
    for cue in phrases.TITLES:
        colours = "|".join(words.COLOURS)
        pattern = (
            rf"{cue.before}(\w+ \w+){cue.between}(.+?){cue.after}({colours})"
            if cue.maker_first
            else rf"{cue.before}(.+?){cue.between}(\w+ \w+){cue.after}({colours})"
        )
        match = re.fullmatch(pattern, title.rstrip("."))
        if match:
            maker, style = match[1], match[2]
            if not cue.maker_first:
                maker, style = style, maker
                style = style if style.startswith("Nordic") else style[0].lower() + style[1:]
            if labels.indices([f"{maker} {style}"])[0] >= 0:
                note(labels.index(f"{maker} {style}"), cue.percent[:5])
                break
    else:
        raise AssertionError(f"no title cue fits {title!r}")
    for sentence in re.findall(r"[^.]+\.", rest):
        for cue in (
            phrases.OTHER_CUES
            + phrases.MATERIAL_CUES
            + phrases.PURPOSE_CUES
            + phrases.SECOND_PURPOSE_CUES
        ):
            before = cue.before.strip() + " "
            whole = sentence.strip()
            if cue.before and whole.startswith(before) and whole.endswith(cue.after):
                thing = whole[len(before) : len(whole) - len(cue.after)]
                thing = thing[0].upper() + thing[1:]
                if labels.indices([thing])[0] >= 0:
                    note(labels.index(thing), cue.percent)
    return found

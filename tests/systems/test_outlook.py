"""What is said of a fit before it starts."""

from __future__ import annotations

import pytest

from megalabel import Tagger, systems
from megalabel.systems import neural_parts
from megalabel.systems import outlook as room
from megalabel.systems.outlook import outlook


def test_small_linear_jobs_are_not_looked_at(corpus):
    assert outlook(systems.create("xr-linear"), corpus).seconds is None


@pytest.fixture
def fits(monkeypatch):
    """The number of texts, and of steps, of each fit that is tried."""
    seen = []
    fit = Tagger.fit_prepared

    def counted(self, prepared, texts):
        seen.append((len(texts), self.classifier.trainer.steps))
        return fit(self, prepared, texts)

    monkeypatch.setattr(Tagger, "fit_prepared", counted)
    return seen


@pytest.mark.parametrize(("copies", "epochs", "texts"), [(6, 1000, 16), (6, 1, 8), (1, 1000, 4)])
def test_a_neural_job_is_tried_on_few_texts_for_two_steps(
    copies, epochs, texts, create, corpus, fits
):
    pytest.importorskip("torch", reason="torch is not installed")
    options = {"classifier__trainer__steps": None, "epochs": epochs, "batch": 16}
    assert outlook(create("astec", **options), corpus[[*range(300)] * copies]).seconds > 0
    assert fits == [(texts, 2)]  # a batch, or about a hundredth of what is read


def test_several_models_take_several_times_as_long(create, corpus, monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr(neural_parts._Trials, "rough_seconds", lambda _: 10.0)
    seconds = [
        outlook(systems.create("xr-transformer", device="cpu", models=models), corpus).seconds
        for models in (1, 3)
    ]
    assert seconds == [10, 30]


def test_where_nothing_can_be_tried_nothing_is_said(create, corpus):
    pytest.importorskip("torch", reason="torch is not installed")
    assert outlook(create("astec", min_df=10_000), corpus).seconds is None


@pytest.mark.parametrize(
    ("seconds", "gpu", "said"),
    [(12_000, False, "epochs"), (12_000, True, "3 h 20 min"), (60, False, "")],
)
def test_a_long_job_is_announced(seconds, gpu, said, create, corpus, monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr(room, "rough_seconds", lambda *_: seconds)
    monkeypatch.setattr(room, "has_gpu", lambda _: gpu)
    expected = outlook(create("astec"), corpus)
    expected.check()
    assert expected.long == bool(said)
    assert said in str(expected)
    assert ("xr-linear" in str(expected)) == (said == "epochs")

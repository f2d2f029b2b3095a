"""A hundred damaged corpora; `python -m tests.hostile` reads many more."""

import logging

import pytest
from tests.hostile import corpora
from tests.hostile.runner import run

from megalabel.errors import DataError


@pytest.mark.filterwarnings("ignore")
def test_damaged_corpora_are_read_or_refused():
    logging.disable(logging.WARNING)
    try:
        corpora.read_valid()
        trials = corpora.trials(seed=0, count=100)
        failures = run(trials, corpora.read_all, (DataError,), size=corpora.unpacked_size)
    finally:
        logging.disable(logging.NOTSET)
    assert failures == []


def test_a_trial_depends_on_its_number_alone(tmp_path):
    several = list(corpora.trials(3, 5))
    alone = next(corpora.trials(3, 1, first=4))
    assert alone.name == several[4].name
    paths = []
    for i, trial in enumerate((several[4], alone)):
        (tmp_path / str(i)).mkdir()
        paths.append(trial.make(tmp_path / str(i)))
    contents = [
        sorted((p.name, p.read_bytes()) for p in (tmp_path / str(i)).iterdir()) for i in (0, 1)
    ]
    assert contents[0] == contents[1]

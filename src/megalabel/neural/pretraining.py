"""Pre-training on one's own texts, without labels: masked words and other targets of tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from megalabel import store
from megalabel.base import clone
from megalabel.checkpoints import Checkpoint
from megalabel.errors import DataError, ParameterError
from megalabel.neural.batches import TextSource
from megalabel.neural.encoders.base import Encoder, EncoderModule
from megalabel.neural.encoders.pretrained import PretrainedEncoder
from megalabel.neural.masking import UNITS, masked
from megalabel.neural.models import Group, Model
from megalabel.neural.tokens import Tokens
from megalabel.neural.trainer import Trainer

if TYPE_CHECKING:
    from megalabel.neural.batches import Batch

TARGETS = ("mlm", "frequency", "tags")
_AUXILIARY = 0.1  # the weight of a target beside the main one
_BATCH = 32
_AT_ONCE = 64  # held-out rows measured together


def pretrain(
    encoder: Encoder,
    tokens: Tokens,
    *,
    targets: Sequence[str] = ("mlm",),
    tags: Sequence[Sequence[str | None]] | None = None,
    units: str = "tokens",
    share: float = 0.15,
    weights: Mapping[str, float] | None = None,
    decay: bool = False,
    tied: bool = False,
    held_out: Tokens | None = None,
    trainer: Trainer | None = None,
) -> Encoder:
    """Train an encoder on texts without labels.

    Parameters
    ----------
    encoder : Encoder
        One that reads tokens; it is left as it is.
    tokens : Tokens
        The texts.
    targets : list of str
        What is guessed, the losses added up: "mlm", tokens that were masked; "frequency", how
        often a word occurs in these texts (log, standardised); "tags", the part of speech or
        whatever else `tags` say. The latter two are guessed at the first token of each word.
    tags : list of lists of str, optional
        The tags of each text's words, as many as `Tokenizer.words` gives; None: unknown.
    units : "tokens", "words" or "spans"
        What is masked: single tokens, whole words, or spans.
    share : float
        Of the tokens that are to be guessed.
    weights : dict, optional
        How much targets beside the first count; 0.1 where it does not say.
    decay : bool
        Let those weights fall to 0 by the end.
    tied : bool
        Masked tokens are guessed by the vectors of the embedding. Those of rare tokens then become
        alike, as every guess pushes them the same way.
    held_out : Tokens, optional
        Other texts: the state that guesses them best is what stays.
    trainer : Trainer, optional
        By default five epochs in batches of 32, at a rate of 2e-3, or 2e-5 where the encoder has
        been trained before.

    Returns
    -------
    encoder : Encoder
        A copy that has learned; a classifier that is given it starts from there.

    Examples
    --------
    >>> from megalabel.neural import AssembledEncoder, Tokenizer
    >>> tokens = Tokenizer().fit_transform(["red dress", "blue jeans"])
    >>> encoder = AssembledEncoder(width=32, layers=1)
    >>> pretrain(encoder, tokens, trainer=Trainer(epochs=1)).fitted
    True
    """
    if encoder.reads != "tokens" or not isinstance(tokens, Tokens):
        raise ParameterError(
            f"{type(encoder).__name__} reads {encoder.reads}, {type(tokens).__name__} given: "
            "pre-training is on tokens"
        )
    if trainer is None:
        trained = encoder.fitted or isinstance(encoder, PretrainedEncoder)
        trainer = like(None, 5, 2e-5 if trained else 2e-3, seed=0)
    made: Encoder = clone(encoder)
    module = made.start(tokens, trainer.seed)
    choices = (made, targets, tags, units, share, weights, decay, tied)
    digest = np.frombuffer(store.fingerprint(choices).encode(), np.uint8)
    train_on_tokens(
        module,
        tokens,
        trainer,
        targets=targets,
        tags=tags,
        units=units,
        share=share,
        weights=weights,
        decay=decay,
        tied=tied,
        held_out=held_out,
        checkpoint=Checkpoint(trainer, tokens.ids, tokens.indptr, digest),
    )
    return made.keep(module)


def like(trainer: Trainer | None, epochs: float, rate: float, seed: int) -> Trainer:
    """A trainer for tokens on the same device as another one, with a schedule of its own."""
    made: Trainer = Trainer() if trainer is None else clone(trainer)
    return made.set_params(
        epochs=epochs,
        steps=None,
        batch=_BATCH,
        accumulate=1,
        learning_rate=rate,
        head_learning_rate=rate,
        average=None,
        patience=None,
        seed=seed,
    )


def train_on_tokens(
    module: EncoderModule,
    tokens: Tokens,
    trainer: Trainer,
    *,
    held_out: Tokens | None = None,
    checkpoint: Checkpoint | None = None,
    **choices: Any,
) -> list[dict[str, float]]:
    """Train a module in place, as `pretrain` does; what the trainer recorded is returned."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trainer.seed)
        model = TokenModel(module, tokens, seed=trainer.seed, **choices)
    model.batches_per_epoch = math.ceil(len(tokens) / trainer.batch_of(len(tokens)))
    model.batches = trainer.total_steps(len(tokens)) * trainer.accumulate
    evaluate = None if held_out is None else lambda: -model.mean_loss(held_out, trainer)
    none = csr_matrix((len(tokens), 1), dtype=np.float32)
    source = TextSource(tokens, none)
    history = trainer.fit(
        model, source, evaluate=evaluate, checkpoint=checkpoint, name="pretraining"
    )
    module.train()
    return history


class TokenModel(Model):
    """An encoder and what guesses the targets of tokens from its states."""

    seen: Tensor
    batches_per_epoch = 1
    batches = 1

    def __init__(
        self,
        encoder: EncoderModule,
        tokens: Tokens,
        *,
        targets: Sequence[str] = ("mlm",),
        tags: Sequence[Sequence[str | None]] | None = None,
        units: str = "tokens",
        share: float = 0.15,
        weights: Mapping[str, float] | None = None,
        decay: bool = False,
        tied: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        _check(targets, tags, units, share, weights)
        self.encoder, self.tokens = encoder, tokens
        self.targets = [name for name in TARGETS if name in targets]
        self.units, self.share, self.seed, self.decay = units, share, seed, decay
        self.weights = dict.fromkeys(self.targets[1:], _AUXILIARY) | dict(weights or {})
        self.aligned: dict[str, np.ndarray] = {}
        self.guesses = nn.ModuleDict()
        width = encoder.state_width
        if "mlm" in self.targets:
            self.guesses["mlm"] = MaskedTokens(encoder, tokens, tied)
        if "frequency" in self.targets:
            self.aligned["frequency"] = log_frequencies(tokens)
            self.guesses["frequency"] = nn.Linear(width, 1)
        if tags is not None and "tags" in self.targets:
            self.aligned["tags"], kinds = numbered_tags(tokens, tags)
            self.guesses["tags"] = nn.Linear(width, max(1, kinds))
        # how many batches were seen: part of the state, so that a resumed training masks alike
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def groups(self) -> dict[str, Group]:
        return {
            "encoder": Group([self.encoder]),
            "guesses": Group([self.guesses], "head_learning_rate"),
        }

    def forward(self, batch: Batch) -> Tensor:
        """The mean loss of a batch; every epoch masks other tokens."""
        seen = int(self.seen)
        self.seen += 1
        left = max(0.0, 1 - seen / self.batches) if self.decay else 1.0
        losses = self.losses(self.tokens, batch.rows, seen // self.batches_per_epoch)
        total = torch.zeros((), device=self.seen.device)
        for name, loss in losses.items():
            total = total + loss * (left * self.weights[name] if name in self.weights else 1.0)
        return total

    def losses(self, tokens: Tokens, rows: np.ndarray, epoch: int) -> dict[str, Tensor]:
        """The mean loss of each target; those that belong to the training's tokens only there."""
        device = self.seen.device
        part, found = tokens[rows], {}
        if "mlm" in self.targets:
            how = {"share": self.share, "units": self.units}
            hidden = masked(tokens, rows, seed=self.seed, epoch=epoch, **how)  # type: ignore[arg-type]
            part = hidden.tokens
        states = self.encoder.hidden(part.batch(np.arange(len(part)), device))[-1]

        def at(places: np.ndarray) -> Tensor:
            row = np.searchsorted(part.indptr, places, "right") - 1
            where = torch.from_numpy(np.stack([row, places - part.indptr[row]])).to(device)
            return states[where[0], where[1]]

        if "mlm" in self.targets:
            truth = torch.from_numpy(hidden.truth.astype(np.int64)).to(device)
            found["mlm"] = _cross_entropy(self.guesses["mlm"](at(hidden.chosen)), truth)
        for name, values in self.aligned.items() if tokens is self.tokens else ():
            own = values[tokens.places(rows)[0]]
            known = np.flatnonzero(own >= 0 if name == "tags" else ~np.isnan(own))
            guess, truth = self.guesses[name](at(known)), torch.from_numpy(own[known]).to(device)
            if name == "tags":
                found[name] = _cross_entropy(guess, truth)
            else:
                found[name] = (guess[:, 0] - truth).square().sum() / max(1, len(known))
        return found

    @torch.no_grad()
    def mean_loss(self, tokens: Tokens, trainer: Trainer) -> float:
        """The loss of the main target on other texts, the same tokens masked every time; its
        exponential is their perplexity."""
        self.eval()
        total = 0.0
        for start in range(0, len(tokens), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(tokens)))
            with trainer.arithmetic():
                losses = self.losses(tokens, rows, 0)
            if not losses:
                raise ParameterError("texts can be held out where masked tokens are guessed")
            total += float(next(iter(losses.values()))) * len(rows)
        return total / max(1, len(tokens))


class MaskedTokens(nn.Module):
    """The scores of all tokens for a state, by the encoder's own vectors of tokens if tied."""

    def __init__(self, encoder: EncoderModule, tokens: Tokens, tied: bool) -> None:
        super().__init__()
        width, table = encoder.state_width, encoder.table
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.output = nn.Linear(width, table.num_embeddings)
        if tied:
            if table.embedding_dim != width:
                raise ParameterError(
                    f"vectors of tokens of width {table.embedding_dim} cannot be tied to states "
                    f"of width {width}: take tied=False"
                )
            self.output.weight = table.weight
        else:
            nn.init.normal_(self.output.weight, std=0.02)
        # at first a token is as likely as it is frequent, which otherwise takes long to learn: some
        # two hundred steps on 3,000 titles
        words = tokens.ids[~np.isin(tokens.ids, list(tokens.special.values()))]
        counts = 1 + np.bincount(words, minlength=table.num_embeddings)
        with torch.no_grad():
            self.output.bias.copy_(torch.from_numpy(np.log(counts / counts.sum())))

    def forward(self, states: Tensor) -> Tensor:
        """States (places, width) to scores (places, tokens)."""
        made: Tensor = self.output(self.transform(states))
        return made


def _cross_entropy(scores: Tensor, truth: Tensor) -> Tensor:
    """The mean; 0 of nothing."""
    return F.cross_entropy(scores.float(), truth, reduction="sum") / max(1, len(truth))


def log_frequencies(tokens: Tokens) -> np.ndarray:
    """log(1 + count) of the word that begins at each token, standardised; NaN within words."""
    starts = tokens.word_starts()
    found = np.full(len(tokens.ids), np.nan, np.float32)
    if not len(starts):
        return found
    # a word is told by a hash of its pieces in order
    place = (
        np.arange(len(tokens.ids))
        - starts[np.maximum(np.searchsorted(starts, np.arange(len(tokens.ids)), "right") - 1, 0)]
    )
    belongs = ~np.isin(tokens.ids, tokens.apart)
    mixed = (tokens.ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= (2 * place + 1).astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
    words = np.add.reduceat(np.where(belongs, mixed, np.uint64(0)), starts)
    _, which, counts = np.unique(words, return_inverse=True, return_counts=True)
    logs = np.log1p(counts[which])
    found[starts] = (logs - logs.mean()) / (logs.std() or 1.0)
    return found


def numbered_tags(tokens: Tokens, tags: Sequence[Sequence[str | None]]) -> tuple[np.ndarray, int]:
    """The number of the tag of the word that begins at each token, -1 where there is none; and
    how many tags there are."""
    if len(tags) != len(tokens):
        raise DataError(f"there are tags for {len(tags)} texts, but {len(tokens)} texts")
    starts = tokens.word_starts()
    per_row = np.diff(np.searchsorted(starts, tokens.indptr))
    for row, (given, words) in enumerate(zip(tags, per_row, strict=True)):
        if len(given) != words:
            raise DataError(
                f"text {row} has {words} words but {len(given)} tags: give one tag a word, as "
                "Tokenizer.words splits it, and None where it is unknown"
            )
    flat = [tag for row in tags for tag in row]
    kinds = {tag: i for i, tag in enumerate(sorted({tag for tag in flat if tag is not None}))}
    found = np.full(len(tokens.ids), -1, np.int64)
    found[starts] = [-1 if tag is None else kinds[tag] for tag in flat]
    return found, len(kinds)


def _check(
    targets: Sequence[str],
    tags: object,
    units: str,
    share: float,
    weights: Mapping[str, float] | None,
) -> None:
    unknown = [name for name in (*targets, *(weights or {})) if name not in TARGETS]
    if unknown or not targets:
        raise ParameterError(f"targets are some of {', '.join(TARGETS)}, not {unknown or 'none'}")
    if ("tags" in targets) != (tags is not None):
        raise ParameterError('the target "tags" and `tags` are given together')
    if units not in UNITS:
        raise ParameterError(f"units must be one of {', '.join(UNITS)}, not {units!r}")
    if not 0 < share <= 1:
        raise ParameterError(f"share must be above 0 and at most 1, not {share}")

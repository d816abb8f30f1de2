"""Train a classifier: row-exact loss, optional distillation, averaging of weights, early stopping, exact resume.

Shape suffixes: B rows, T tokens, C classes, D width.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from data.batching import POLICIES
from data.errors import DaymillError
from data.tokens import pad
from training.clock import DATA, TELEMETRY, VALIDATION
from training.device import device_of, moved
from training.flops import classifying_flops
from training.history import History
from training.knobs import ClassifyConfig, Distill
from training.listeners import Bar
from training.losses import label_loss_sum, soft_loss_sum
from training.memory import keep_freed_memory
from training.metrics import best_threshold, confusion, headline
from training.mixed import leaves_plain, set_modes
from training.model import Classifier, mean_pool
from training.numerics import Numerics
from training.optim import make_adamw
from training.peak import Peak, peak_of
from training.peers import NoPeers, Peers
from training.precision import Choice, Kernel, Precision, autocast
from training.predict import predict_logits
from training.rows import Rows
from training.schedule import learning_rate, warmup_steps
from training.settle import settle
from training.spacing import Spacing
from training.state import load_state, part, restore_training, save_state, training_tensors
from training.step import StepReport, Trainer
from training.telemetry import Telemetry
from training.world import seed_of

PROBE_ROWS = 4


@dataclass(frozen=True)
class RowBatch:
    ids: Tensor  # [B, T]
    mask: Tensor  # [B, T]
    labels: Tensor  # [B]
    teacher: Tensor | None  # [B, C]
    weights: Tensor | None = None  # [B]


@leaves_plain
def train_classifier(
    model: Classifier,
    train: Rows,
    config: ClassifyConfig,
    *,
    valid: Rows | None = None,
    teacher: nn.Module | NDArray[np.floating] | None = None,
    distill: Distill | None = None,
    on_step: Callable[[int, int], None] | None = None,
    on_eval: Callable[[dict[str, float]], None] | None = None,
    on_look: Callable[[int, dict[str, float]], None] | None = None,
    progress: Bar | None = None,
    state: Path | None = None,
    spread: Callable[[nn.Module], Peers] | None = None,
    note: Callable[[str], None] = lambda _line: None,
) -> History:
    """Train `model` in place; it ends in eval mode with the best weights on `valid` (without it: the last ones).

    `teacher` is a frozen classifier or its logits [N, C] for the train rows; `distill` says how to follow it.
    `on_step(step, steps)` runs before each update; `note` is told how the run computes and why; `on_look(step, values)`
    has what telemetry tells. `state` names a file for exact resume after a kill, saved at evaluations. Rows without a
    label must be dropped before. A row's
    weight multiplies all of its losses; `valid` is judged unweighted, a row a record. `spread` makes this process one
    of several ranks, which are all given the same arguments and end with the same weights; the first one saves. Raises
    DaymillError without rows, or where all weigh nothing.
    """
    if not len(train):
        raise DaymillError("no labelled rows to train on")
    if train.weights is not None and not train.weights.any():
        raise DaymillError(f"all {len(train)} labelled rows have weight 0; there is nothing to learn from")
    keep_freed_memory()
    torch.manual_seed(config.seed)
    job = Job(model, train, config, teacher, distill, spread(model) if spread is not None else None)
    return job.run(valid, on_step, on_eval, on_look, progress, state, note)


class Job:
    """One run of `train_classifier`: the plan of its steps and the state that they change."""

    def __init__(
        self,
        model: Classifier,
        train: Rows,
        config: ClassifyConfig,
        teacher: nn.Module | NDArray[np.floating] | None,
        distill: Distill | None,
        peers: Peers | None = None,
    ) -> None:
        self.model, self.train, self.config, self.peers = model, train, config, peers or NoPeers()
        self.per_epoch = -(-len(train) // config.rows)
        self.steps = config.steps if config.steps is not None else max(1, round(config.epochs * self.per_epoch))
        self.every = max(1, min(self.steps, round(self.per_epoch / config.evaluations)))
        self.trainer = Trainer(model, make_adamw(model, config.weight_decay), config.clip, self.peers.world)
        self.device = device_of(model)
        self.class_weights = balanced_weights(train).to(self.device) if config.balance else None
        self.history = History(warmup=warmup_steps(config.warmup, self.steps))
        self.average: dict[str, Tensor] = {}
        self.best: dict[str, Tensor] = {}
        self.best_loss = float("inf")
        self.distill = distill if teacher is not None else None
        self.teacher = teacher
        self.soft: Tensor | None = None
        self.precision: Precision = "fp32"
        self.flops = 0  # of the last step, on all ranks
        self.order: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, dtype=np.int64))

    def run(
        self,
        valid: Rows | None,
        on_step: Callable[[int, int], None] | None,
        on_eval: Callable[[dict[str, float]], None] | None,
        on_look: Callable[[int, dict[str, float]], None] | None,
        progress: Bar | None,
        state: Path | None,
        note: Callable[[str], None],
    ) -> History:
        saved = load_state(state) if state is not None else None
        if saved is not None:
            self.restore(*saved)
        else:
            self.history.choice = asdict(self.peers.choice(self.probe()))
            if self.config.average:
                self.average = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        choice = Choice(**self.history.choice)
        self.compute_as(choice, note)
        if saved is None:
            note(f"computes in {choice.precision} with {choice.attention} attention: {choice.reason}")
        else:
            self.trainer.numerics.load(self.history.numerics)
        self.prepare_teacher()
        telemetry = self.watched(choice)
        spacing = Spacing(0.0, self.config.save_share, telemetry.clock)
        if on_look is not None:
            for step, values in self.history.looks:
                on_look(step, values)
        self.model.train()
        if progress is not None and self.history.steps:
            progress.advance(self.history.steps * self.config.rows)
        while self.history.steps < self.steps and not self.history.stopped_early:
            if on_step is not None:
                on_step(self.history.steps, self.steps)
            seen = len(self.history.looks)
            report = self.update(telemetry)
            if report.skipped:
                continue
            loss = report.loss
            if on_look is not None and len(self.history.looks) > seen:
                with telemetry.part(TELEMETRY):
                    on_look(*self.history.looks[-1])
            if progress is not None:
                progress.advance(self.config.rows, f"loss {loss:.3f}, {self.history.tokens_per_s:,.0f} tokens/s")
            if self.history.steps % self.every == 0 or self.history.steps == self.steps:
                if valid is not None:
                    with telemetry.part(VALIDATION):
                        entry = self.evaluate(valid, loss)
                    self.history.stopped_early = 0 < self.config.patience <= self.history.waiting
                    if on_eval is not None:
                        on_eval(entry)
                ended = self.history.stopped_early or self.history.steps == self.steps
                if state is not None and self.peers.rank == 0 and (spacing.due() or ended):
                    with spacing.saving():
                        self.save(state)
        telemetry.clock.tick()
        self.finish(valid)
        self.history.numerics = self.trainer.numerics.state()
        return self.history

    def compute_as(self, choice: Choice, note: Callable[[str], None] = lambda _line: None) -> None:
        self.precision = choice.precision
        set_modes(self.model, choice)
        self.trainer.numerics = Numerics(self.model, choice, tell=note)
        self.model.backbone.set_attention(choice.attention)

    def watched(self, choice: Choice) -> Telemetry:
        every, known = self.config.look_every, self.history.peak
        if every and not known:
            known = self.history.peak = asdict(peak_of(self.device, choice.precision))
        return Telemetry(every, self.trainer, self.peers.view, Peak(**known) if known else None, self.history.spent)

    def update(self, telemetry: Telemetry) -> StepReport:
        """One step, as a rule an update; of one that is skipped the rows are used up, and nothing else counts."""
        start = time.perf_counter()
        step, config = self.history.steps, self.config
        rate = learning_rate(step, self.steps, config.lr, self.history.warmup, config.floor)
        with telemetry.part(DATA):
            batches = self.micro_batches(step + self.history.skipped)
        with telemetry.step(step + 1):
            report = self.trainer.step(batches, self.loss_sum, self.weight, rate)
        if self.average and report.updated:
            # Early on the average follows quickly, so that it does not remember the first random weights.
            decay = min(config.average, (1 + step) / (10 + step))
            now = [p.detach() for p in self.model.parameters()]
            torch._foreach_lerp_(list(self.average.values()), now, 1 - decay)
        self.history.seconds += time.perf_counter() - start
        if report.skipped:
            self.history.skipped += 1
            return report
        self.history.steps += 1
        values = telemetry.after_step(self.history.steps, report, self.flops)
        if values:
            values |= {"train/loss": report.loss, "train/grad_norm": report.grad_norm, "train/lr": rate}
            self.history.looks.append((self.history.steps, values))
        return report

    def micro_batches(self, step: int) -> list[RowBatch]:
        """The rows of a step, drawn without replacement within each epoch: a pure function of the step."""
        epoch, at = divmod(step, self.per_epoch)
        if self.order[0] != epoch:
            self.order = (epoch, np.random.default_rng((self.config.seed, epoch)).permutation(len(self.train)))
        chosen = self.order[1][at * self.config.rows : (at + 1) * self.config.rows]
        tokens = self.train.tokens
        lengths = np.array([len(tokens[i]) for i in chosen])
        self.history.tokens += int(lengths.sum())
        if self.config.look_every:
            self.flops = sum(classifying_flops(self.model.backbone.config, int(length)) for length in lengths)
        rank, ranks = self.peers.rank, self.peers.ranks
        shares = [chosen]
        if ranks > 1:  # a step's rows are dealt by length: no rank has much more to do than another
            torch.manual_seed(seed_of(self.config.seed, step, rank))  # what dropout draws for this rank's rows
            dealt = chosen[np.argsort(-lengths, kind="stable")]
            shares = [dealt[each::ranks] for each in range(ranks)]
        plans = [self.plan(share) for share in shares]
        return [self.batch(shares[rank][members]) for members in plans[rank]]

    def plan(self, share: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Micro-batches of some rows, as places among them; counts what padding makes of them."""
        lengths = np.array([len(self.train.tokens[i]) for i in share], dtype=np.int64)
        batches = POLICIES[self.config.batches](lengths, self.config.max_tokens)
        self.history.padded += sum(len(members) * int(lengths[members].max()) for members in batches)
        return batches

    def batch(self, index: NDArray[np.int64]) -> RowBatch:
        ids, mask = pad([self.train.tokens[i] for i in index])
        return RowBatch(
            moved(torch.from_numpy(ids), self.device),
            moved(torch.from_numpy(mask), self.device),
            moved(torch.from_numpy(self.train.labels[index]), self.device),
            None if self.soft is None else moved(self.soft[torch.from_numpy(index)], self.device),
            None if self.train.weights is None else moved(torch.from_numpy(self.train.weights[index]), self.device),
        )

    def loss_sum(self, batch: RowBatch) -> Tensor:
        model, distill = self.model, self.distill
        with autocast(self.precision, batch.ids.device):
            if distill is None or not distill.hidden:
                hidden_BTD, logits_BC = None, model(batch.ids, batch.mask)
            else:
                hidden_BTD = model.backbone.hidden(batch.ids, batch.mask)
                logits_BC = model.head(model.drop(mean_pool(hidden_BTD, batch.mask)))
        hard = label_loss_sum(logits_BC, batch.labels, self.config.smoothing, self.class_weights, batch.weights)
        if distill is None:
            return hard
        teacher_BC = batch.teacher
        if hidden_BTD is not None:
            assert isinstance(self.teacher, Classifier)
            with torch.no_grad(), autocast(self.precision, batch.ids.device):
                goal_BTD = self.teacher.backbone.hidden(batch.ids, batch.mask)
                teacher_BC = self.teacher.head(mean_pool(goal_BTD, batch.mask))
        assert teacher_BC is not None
        soft = soft_loss_sum(logits_BC, teacher_BC, distill.temperature, batch.weights)
        loss = (1 - distill.weight) * hard + distill.weight * soft
        if hidden_BTD is not None:
            error_BT = F.mse_loss(hidden_BTD.float(), goal_BTD.float(), reduction="none").mean(-1)
            error_B = mean_pool(error_BT.unsqueeze(-1), batch.mask).squeeze(-1)
            loss = loss + distill.hidden * (error_B if batch.weights is None else error_B * batch.weights).sum()
        return loss

    def weight(self, batch: RowBatch) -> float:
        """What a micro-batch counts for: the step divides by the sum of it over its micro-batches."""
        if batch.weights is not None:
            weights = batch.weights.double()
            return float((weights if self.class_weights is None else weights * self.class_weights[batch.labels]).sum())
        if self.class_weights is None:
            return float(len(batch.labels))
        return float(self.class_weights[batch.labels].sum())

    def prepare_teacher(self) -> None:
        """A frozen teacher answers each row once: its logits do not change from epoch to epoch."""
        if self.distill is None or self.distill.hidden:
            if self.distill is not None and not isinstance(self.teacher, Classifier):
                raise ValueError("distilling hidden states needs the teacher itself, not its logits")
            return
        logits = self.teacher
        if isinstance(logits, nn.Module):
            logits = self.logits(logits, self.train)
        self.soft = torch.from_numpy(np.asarray(logits, dtype=np.float32))

    def probe(self) -> Choice:
        """Precision and attention kernel for a few of the longest rows."""
        batch = self.batch(np.argsort(-self.train.lengths, kind="stable")[:PROBE_ROWS])

        def run(precision: Precision, attention: Kernel) -> None:
            self.model.backbone.set_attention(attention)
            with autocast(precision, batch.ids.device):
                loss = label_loss_sum(self.model(batch.ids, batch.mask), batch.labels)
            loss.backward()
            self.model.zero_grad(set_to_none=True)

        config = self.config
        width = self.model.backbone.config.width
        return settle(
            self.model, run, width, config.max_tokens, config.precision, config.attention, emulate=config.emulate
        )

    def evaluate(self, valid: Rows, train_loss: float) -> dict[str, float]:
        """Validation loss (sum over sum) and the headline metric; keeps the weights when the loss is the lowest."""
        with self.averaged():
            logits = self.logits(self.model, valid)
            loss = label_loss_sum(torch.from_numpy(logits), torch.from_numpy(valid.labels)).item() / len(valid)
            self.model.train()
            if loss < self.best_loss:
                self.best_loss, self.history.best_step = loss, self.history.steps
                self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        entry = {
            "step": self.history.steps,
            "epoch": self.history.steps / self.per_epoch,
            "train_loss": train_loss,
            "valid_loss": loss,
            "valid_f1": self.f1(valid, logits),
            "tokens_per_s": self.history.tokens_per_s,
        }
        self.history.evaluations.append(entry)
        return entry

    def logits(self, model: nn.Module, rows: Rows) -> NDArray[np.float32]:
        """A model's logits [N, C] of all rows, each rank having asked it for some."""
        rank, ranks = self.peers.rank, self.peers.ranks
        if ranks == 1:
            return predict_logits(model, rows.tokens, precision=self.precision)
        answers = np.zeros((len(rows), self.model.head.out_features), dtype=np.float32)
        if rank < len(rows):
            answers[rank::ranks] = predict_logits(model, rows.tokens[rank::ranks], precision=self.precision)
        return self.peers.together(answers)

    def f1(self, rows: Rows, logits: NDArray[np.float32]) -> float:
        predicted = logits.argmax(-1)
        positive = self.config.positive
        if positive is not None and logits.shape[1] == 2:
            scores = torch.from_numpy(logits).softmax(-1)[:, positive].numpy()
            called = scores >= best_threshold(rows.labels == positive, scores)
            predicted = np.where(called, positive, 1 - positive)
        return float(headline(confusion(rows.labels, predicted, logits.shape[1]), positive))

    def averaged(self) -> Swapped:
        return Swapped(self.model, self.average)

    def finish(self, valid: Rows | None) -> None:
        if valid is not None and self.best:
            self.model.load_state_dict(self.best)
        elif self.average:
            self.model.load_state_dict(self.average, strict=False)
        self.model.eval()

    def save(self, path: Path) -> None:
        tensors = training_tensors(self.model, self.trainer.optimizer)
        tensors |= {f"average/{name}": tensor for name, tensor in self.average.items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self.best.items()}
        self.history.numerics = self.trainer.numerics.state()
        save_state(path, tensors, {"history": asdict(self.history), "best_loss": self.best_loss})

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        restore_training(self.model, self.trainer.optimizer, tensors)
        average = part(tensors, "average")
        # In the order of the parameters, which the update of the average walks along.
        named = self.model.named_parameters()
        self.average = {name: average[name].to(self.device) for name, _ in named if name in average}
        self.best = part(tensors, "best")
        looks = [(step, values) for step, values in meta["history"]["looks"]]
        self.history, self.best_loss = History(**meta["history"] | {"looks": looks}), meta["best_loss"]


class Swapped:
    """A context in which a model has other parameter values."""

    def __init__(self, model: nn.Module, values: dict[str, Tensor]) -> None:
        self.pairs = [(p.data, values[name]) for name, p in model.named_parameters() if name in values]

    def exchange(self) -> None:
        for ours, theirs in self.pairs:
            kept = ours.clone()
            ours.copy_(theirs)
            theirs.copy_(kept)

    def __enter__(self) -> None:
        self.exchange()

    def __exit__(self, *_: object) -> None:
        self.exchange()


def balanced_weights(rows: Rows) -> Tensor:
    """Weights [C] inverse to the classes' shares of what the rows weigh, 1 in the (weighted) mean over rows."""
    if rows.weights is None:
        counts = np.bincount(rows.labels, minlength=len(rows.names)).astype(np.float64)
        return torch.tensor(len(rows) / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)
    mass = np.bincount(rows.labels, weights=rows.weights, minlength=len(rows.names))
    shares = np.divide(mass.sum(), len(mass) * mass, out=np.zeros_like(mass), where=mass > 0)
    return torch.tensor(shares, dtype=torch.float32)

"""What each precision costs and saves against fp32: bytes, and the loss that a real run ends with; claims beside it.

Pretrains the same model from the same seeds on the spam sample's mails (`daymill sample spam`) in every precision, by
emulation where this device lacks it, and takes the validation loss of the final weights, computed in fp32 for all.
Training is chaotic, so fp32 is also run against itself with each first weight moved by about one unit in the last
place: a smaller difference says nothing. What rounding alone does is the last column: the loss of fp32's final weights,
computed in each precision. Bytes are those of parameters, gradients and moments, and of what the forward pass keeps for
the backward pass, counted at a larger shape. `--speed` also times the per-shape probe; that needs a quiet machine.

python benchmarks/precision.py [--steps 120] [--seeds 3] [--speed]     24 runs, some 15 minutes on a core
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.mails import mail_shards
from data.tokens import TokenShard
from training.config import ModelConfig
from training.knobs import PretrainConfig
from training.loader import TokenBatch
from training.mixed import layers_of, make_plain, set_modes
from training.model import Transformer
from training.precision import Choice, Precision
from training.pretrain import pretrain, validation_loss
from training.ranks import token_loss_sum
from training.settle import OFFERED, seconds_of

VOCAB, DEPTH, LENGTH, ROWS, RATE = 2048, 3, 128, 4, 5e-4
LARGE = ModelConfig.from_depth(8, VOCAB, max_len=1024)  # 512 wide: where activations are most of the memory
LARGE_ROWS, LARGE_LENGTH = 4, 512
VALID = 40_000  # tokens
OUT = Path("artifacts/bench/precision.json")
WAYS: dict[str, dict[str, Any]] = {
    "fp32": {"precision": "fp32"},
    "fp32, an ulp off": {"precision": "fp32"},
    "tf32 (emulated)": {"precision": "tf32"},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "fp8 tensor (emulated)": {"precision": "fp8", "fp8_scaling": "tensor"},
    "fp8 row (emulated)": {"precision": "fp8", "fp8_scaling": "row"},
    "adaptive (emulated)": {"precision": "adaptive"},
}
FLOOR = "fp32, an ulp off"
CLAIMS = {
    "fp16": "on par with fp32",
    "fp8 tensor (emulated)": "48 -> 29 GB (.60), < 1e-4",
    "fp8 row (emulated)": "48 -> 29 GB (.60), < 1e-4",
}


class Wide(TorchDispatchMode):
    """Products of bf16 and fp16 values with sums in fp32 and one rounding, as AMX and tensor cores do.

    CPUs without them have kernels of the same numbers that take ten times as long.
    """

    KINDS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.mm.out)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in self.KINDS or args[0].dtype not in (torch.bfloat16, torch.float16):
            return func(*args, **(kwargs or {}))
        product = args[0].float() @ args[1].float()
        return kwargs["out"].copy_(product) if kwargs and "out" in kwargs else product.to(args[0].dtype)


def config_of(way: str, seed: int, steps: int) -> PretrainConfig:
    return PretrainConfig(
        tokens=steps * ROWS * LENGTH,
        length=LENGTH,
        rows=ROWS,
        lr=RATE,  # at the default of 2e-3 so short a run is all noise: fp32 is 5e-3 from itself
        seed=seed,
        evaluations=1,
        valid_tokens=LENGTH,
        save_every_s=1e9,
        attention="plain",
        emulate=True,
        **WAYS[way],
    )


def fresh(seed: int) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(ModelConfig.from_depth(DEPTH, VOCAB, max_len=LENGTH))


def final_loss(
    model: Transformer, way: str, seed: int, steps: int, train: TokenShard, valid: TokenShard
) -> dict[str, Any]:
    """Trains the model; the loss it ends with, computed in fp32."""
    if way == FLOOR:
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 2.0**-23)
    config = config_of(way, seed, steps)
    with tempfile.TemporaryDirectory() as folder, Wide():
        done = pretrain(model, train, valid, config, state=Path(folder) / "state")
    loss = validation_loss(model, valid, replace(config, valid_tokens=VALID), "fp32")
    events = (done.numerics.get("adaptive") or {}).get("events", [])
    return {"loss": loss, "skipped": done.skipped, "changes": len(events)}


def choose_modes(model: Transformer, way: str) -> Precision:
    """Give the layers the modes that they begin with."""
    precision: Precision = WAYS[way]["precision"]
    layers = {name: list(OFFERED[precision]) for name, _ in layers_of(model)} if precision == "adaptive" else {}
    set_modes(model, Choice(precision, "sdpa", "", layers, WAYS[way].get("fp8_scaling", "tensor")))
    return precision


def rounding_of(way: str, model: Transformer, valid: TokenShard) -> float:
    """The loss of these weights computed in a precision."""
    precision = choose_modes(model, way)
    with Wide():
        loss = validation_loss(model, valid, replace(config_of("fp32", 0, 1), valid_tokens=VALID), precision)
    make_plain(model)
    return loss


def bytes_of(way: str) -> dict[str, int]:
    """Of the large shape: parameters, gradients and two moments in fp32, and what is kept for the backward pass."""
    torch.manual_seed(0)
    model = Transformer(LARGE)
    model.set_attention("sdpa")
    ids = torch.randint(0, VOCAB, (LARGE_ROWS, LARGE_LENGTH))
    precision = choose_modes(model, way)
    state = 4 * sum(p.numel() * p.element_size() for p in model.parameters())
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with Wide(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = token_loss_sum(model, TokenBatch(ids, ids, torch.zeros_like(ids)), precision)
    del loss
    make_plain(model)
    return {"state": state, "kept": sum(kept.values())}


def speeds() -> None:
    """The per-shape probe on this device: milliseconds forward and backward, of every mode that it has."""
    print(f"\n{'rows x in x out':20}    fp32    bf16    fp16   ms on one thread")
    torch.set_num_threads(1)
    for width in (192, 384, 768):
        for inputs, outputs in ((width, width), (width, 8 * width // 3), (8 * width // 3, width)):
            layer = torch.nn.Linear(inputs, outputs, bias=False)
            times = [
                1000 * statistics.median(seconds_of(layer, 2048, mode, Choice(precision, "sdpa", "")) for _ in range(5))
                for mode, precision in (("fp32", "fp32"), ("bf16", "bf16"), ("fp16", "fp16"))
            ]
            print(f"{f'2048 x {inputs} x {outputs}':20}" + "".join(f"{ms:8.1f}" for ms in times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args()
    train, valid = mail_shards(VOCAB)
    plain = bytes_of("fp32")
    report: dict[str, Any] = {"steps": given.steps, "ways": {}}
    trained = fresh(0)
    for way in WAYS:
        runs = []
        for seed in range(given.seeds):
            model = trained if (way, seed) == ("fp32", 0) else fresh(seed)
            runs.append(final_loss(model, way, seed, given.steps, train, valid))
        rounding = rounding_of(way, trained, valid)
        report["ways"][way] = {"runs": runs, "rounding": rounding, **bytes_of(way)}
        OUT.parent.mkdir(parents=True, exist_ok=True)
        OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print(f"{way}: {[round(run['loss'], 5) for run in runs]}, {rounding:.6f}", file=sys.stderr, flush=True)
    print(f"{'precision':22}   state     kept  of fp32     loss    to fp32   largest  rounding  claim")
    base = [run["loss"] for run in report["ways"]["fp32"]["runs"]]
    for way, row in report["ways"].items():
        losses = [run["loss"] for run in row["runs"]]
        apart = [(ours - theirs) / theirs for ours, theirs in zip(losses, base, strict=True)]
        share = (row["state"] + row["kept"]) / (plain["state"] + plain["kept"])
        note = "".join(f", {sum(run[what] for run in row['runs'])} {what}" for what in ("skipped", "changes"))
        print(
            f"{way:22} {row['state'] / 1e6:4.0f} MB {row['kept'] / 1e6:5.0f} MB {share:8.2f} "
            f"{statistics.mean(losses):8.4f} {statistics.mean(apart):+10.1e} {max(map(abs, apart)):9.1e} "
            f"{row['rounding'] / base[0] - 1:+9.1e}  "
            f"{CLAIMS.get(way, '')}{note if way.startswith(('fp16', 'adaptive')) else ''}"
        )
    if given.speed:
        speeds()


if __name__ == "__main__":
    main()

"""The shape of a model: plain data, torch-free, with a JSON round trip."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from data.errors import DaymillError


@dataclass(frozen=True)
class LayerShape:
    """Width of one block: attention heads and FFN channels. Pruning makes them differ from layer to layer."""

    heads: int
    ffn: int


@dataclass(frozen=True)
class ModelConfig:
    """Everything needed to build the model again from weights alone.

    The defaults are Daymill's own decoder (RMSNorm, SwiGLU, rotary positions, tied embeddings); the alternatives
    describe encoders adopted from elsewhere (LayerNorm after the residual, GELU, learned positions, biases).
    """

    vocab_size: int
    width: int
    layers: tuple[LayerShape, ...]
    head_dim: int = 32
    max_len: int = 512
    norm: Literal["rms", "layer"] = "rms"
    norm_place: Literal["pre", "post"] = "pre"
    activation: Literal["swiglu", "gelu"] = "swiglu"
    position: Literal["rotary", "learned"] = "rotary"
    causal: bool = True
    bias: bool = False
    dropout: float = 0.0
    norm_eps: float = 1e-6
    rope_theta: float = 10_000.0

    @staticmethod
    def from_depth(depth: int, vocab_size: int, **overrides: Any) -> ModelConfig:
        """The one size dial: `depth` blocks, width 64 x depth, heads of 32, FFN 8/3 x width rounded up to 32."""
        if depth < 1:
            raise DaymillError(f"model depth is {depth}; expected at least 1 block")
        width = 64 * depth
        ffn = -(-(8 * width // 3) // 32) * 32
        return ModelConfig(
            vocab_size=vocab_size, width=width, layers=(LayerShape(width // 32, ffn),) * depth, **overrides
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"layers": [asdict(shape) for shape in self.layers]}

    @staticmethod
    def from_json(data: dict[str, Any]) -> ModelConfig:
        """The config a checkpoint holds; unknown or missing keys are an error that names them."""
        known = {f.name for f in fields(ModelConfig)}
        if unknown := set(data) - known:
            raise DaymillError(f"config.json: unknown model keys {sorted(unknown)}; expected among {sorted(known)}")
        if missing := {"vocab_size", "width", "layers"} - set(data):
            raise DaymillError(f"config.json: missing model keys {sorted(missing)}")
        return ModelConfig(**data | {"layers": tuple(LayerShape(**shape) for shape in data["layers"])})

    def prunable_parameters(self) -> int:
        """Weights in heads and FFN channels: what structured pruning may remove (embeddings and norms are not)."""
        matrices = 3 if self.activation == "swiglu" else 2
        return sum(
            4 * self.width * shape.heads * self.head_dim + matrices * self.width * shape.ffn for shape in self.layers
        )

"""The shape of a model: plain data, torch-free, with a JSON round trip."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from data.errors import DaymillError

Activation = Literal["swiglu", "gelu", "relu2", "dsrelu"]
ACTIVATIONS: tuple[Activation, ...] = ("swiglu", "gelu", "relu2", "dsrelu")


@dataclass(frozen=True)
class LayerShape:
    """Width of one block: attention heads and FFN channels. Pruning makes them differ from layer to layer."""

    heads: int
    ffn: int
    kv_heads: int | None = None  # heads of keys and values, each shared by heads / kv_heads queries; None: one each
    theta: float = 0.0  # D-SReLU's threshold; where it is learned, the one to begin with

    def __post_init__(self) -> None:
        if self.kv_heads is not None and (self.kv_heads < 1 or self.heads % self.kv_heads):
            raise DaymillError(
                f"{self.heads} attention heads cannot share {self.kv_heads} key-value heads; "
                f"expected a divisor of {self.heads}"
            )

    @property
    def keys(self) -> int:
        """Heads of keys and of values."""
        return self.kv_heads or self.heads

    @property
    def group(self) -> int:
        """Query heads that share a key-value head."""
        return self.heads // self.keys


@dataclass(frozen=True)
class ModelConfig:
    """Everything needed to build the model again from weights alone.

    The defaults are Daymill's own decoder (RMSNorm, SwiGLU, rotary positions, tied embeddings); the alternatives
    describe models adopted from elsewhere (LayerNorm after the residual, GELU, learned positions, biases, an output
    embedding of its own) and other activations to train with.
    """

    vocab_size: int
    width: int
    layers: tuple[LayerShape, ...]
    head_dim: int = 32
    max_len: int = 512
    norm: Literal["rms", "layer"] = "rms"
    norm_place: Literal["pre", "post"] = "pre"
    activation: Activation = "swiglu"
    position: Literal["rotary", "learned"] = "rotary"
    causal: bool = True
    bias: bool = False
    dropout: float = 0.0
    norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    tied: bool = True  # the output embedding is the input embedding
    learned_theta: bool = False  # D-SReLU: thresholds are parameters; else each layer's `theta` holds

    def __post_init__(self) -> None:
        if self.activation == "dsrelu" and min(shape.theta for shape in self.layers) <= 0:
            raise DaymillError("dsrelu needs a theta above 0 in every layer: at 0 it is no activation, but a product")
        if self.activation != "dsrelu" and self.learned_theta:
            raise DaymillError(f"a learned theta is for the activation dsrelu; this model has {self.activation}")

    @staticmethod
    def from_depth(
        depth: int,
        vocab_size: int,
        *,
        head_dim: int = 32,
        kv_heads: int | None = None,
        theta: float = 0.0,
        **overrides: Any,
    ) -> ModelConfig:
        """The one size dial: `depth` blocks, width 64 x depth, in heads of `head_dim` channels.

        The FFN has 8/3 x width channels, rounded up to 32, where it is gated, and else 4 x width: as many weights.
        Raises DaymillError for no block, and for a width that the heads do not divide.
        """
        if depth < 1:
            raise DaymillError(f"model depth is {depth}; expected at least 1 block")
        width = 64 * depth
        if width % head_dim or head_dim % 2:  # rotary positions pair the channels of a head
            raise DaymillError(
                f"heads of {head_dim} channels do not divide width {width} evenly; expected 16, 32 or 64"
            )
        gated = overrides.get("activation", "swiglu") == "swiglu"
        ffn = -(-(8 * width // 3) // 32) * 32 if gated else 4 * width
        shape = LayerShape(width // head_dim, ffn, kv_heads, theta)
        return ModelConfig(vocab_size=vocab_size, width=width, layers=(shape,) * depth, head_dim=head_dim, **overrides)

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
        return sum(
            2 * self.width * (shape.heads + shape.keys) * self.head_dim + self.ffn_matrices * self.width * shape.ffn
            for shape in self.layers
        )

    @property
    def ffn_matrices(self) -> int:
        """Matrices of a feed-forward network: gate, up and down, or up and down."""
        return 3 if self.activation == "swiglu" else 2

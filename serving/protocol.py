"""Open Inference Protocol V2, REST: requests checked, responses written.

https://github.com/kserve/open-inference-protocol. One input `text`, BYTES [n] or [n, 1]; outputs `label` BYTES [n],
`score` FP32 [n] (probability of the positive label where one of two is positive, else of the label given) and
`probabilities` FP32 [n, C] in the order of the labels. Request parameter `threshold` overrides the model's cut.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from data.errors import DaymillError
from serving.engine import Answers
from serving.manifest import Manifest

OUTPUTS = ("label", "score", "probabilities")
HARMLESS = ("content_type", "headers")  # what common clients add
FLAT = 2  # dimensions of the largest shape that is taken


class BadRequest(DaymillError):
    """The request is not one that this model can answer (HTTP 400)."""


@dataclass(frozen=True)
class RequestLimits:
    """Bounds of one request."""

    rows: int = 256
    text_bytes: int = 1 << 20  # UTF-8 bytes of one text
    body_bytes: int = 8 << 20


@dataclass(frozen=True)
class InferRequest:
    id: str | None
    texts: list[str]
    outputs: tuple[str, ...]
    threshold: float | None


def parse(body: bytes, limits: RequestLimits, binary: bool) -> InferRequest:
    """The request in a body. `binary`: the model has a threshold. Raises BadRequest saying what is wrong and where."""
    try:
        data = json.loads(body, parse_constant=_refuse_constant)
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except ValueError as error:  # also bytes that are not UTF-8
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadRequest(f"the body is a JSON {_kind(data)}; expected an object with `inputs`")
    identifier = data.get("id")
    if identifier is not None and not isinstance(identifier, str):
        raise BadRequest(f"id is a {_kind(identifier)}; expected a string")
    return InferRequest(
        identifier, _texts(data, limits), _outputs(data), _threshold(_object(data, "parameters"), binary)
    )


def respond(request: InferRequest, answers: Answers, manifest: Manifest) -> dict[str, Any]:
    """The response object: the outputs asked for, in the order asked."""
    rows = len(answers.chosen)
    tensors = {
        "label": ("BYTES", [rows], answers.names),
        "score": ("FP32", [rows], lambda: answers.score.astype("float32").tolist()),
        "probabilities": (
            "FP32",
            [rows, len(answers.labels)],
            lambda: answers.probabilities.astype("float32").ravel().tolist(),
        ),
    }
    response: dict[str, Any] = {"model_name": manifest.name, "model_version": manifest.version}
    if request.id is not None:
        response["id"] = request.id
    response["outputs"] = [
        {"name": name, "datatype": datatype, "shape": shape, "data": data()}
        for name, (datatype, shape, data) in ((name, tensors[name]) for name in request.outputs)
    ]
    return response


def describe(manifest: Manifest, runtime: str) -> dict[str, Any]:
    """The model metadata object; `properties` (the gRPC protocol has them too) tell a person what answers."""
    return {
        "name": manifest.name,
        "versions": [manifest.version],
        "platform": f"{runtime}_onnx",
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
            {"name": "score", "datatype": "FP32", "shape": [-1]},
            {"name": "probabilities", "datatype": "FP32", "shape": [-1, len(manifest.labels)]},
        ],
        "properties": {
            "labels": json.dumps(manifest.labels, ensure_ascii=False),
            "positive": manifest.positive or "",
            "threshold": f"{manifest.threshold:.6g}" if manifest.binary else "",
            "engine": runtime,
            "precision": manifest.precision,
            "max_tokens": str(manifest.preprocess.max_len),
            "created": manifest.created,
        },
    }


def _texts(data: dict[str, Any], limits: RequestLimits) -> list[str]:
    inputs = data.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise BadRequest("inputs: expected a list of exactly one tensor, named `text`")
    tensor = inputs[0]
    if tensor.get("name") != "text":
        raise BadRequest(f"inputs[0]: name {tensor.get('name')!r}; expected `text`")
    if tensor.get("datatype") != "BYTES":
        raise BadRequest(f"inputs[0]: datatype {tensor.get('datatype')!r}; expected BYTES")
    if "binary_data_size" in _object(tensor, "parameters"):
        raise BadRequest("inputs[0]: binary tensors are not supported; send `data` as JSON strings")
    rows = _rows(tensor.get("shape"))
    if rows > limits.rows:
        raise BadRequest(f"inputs[0]: {rows} rows; at most {limits.rows} a request")
    texts = _flatten(tensor.get("data"))
    if len(texts) != rows:
        raise BadRequest(f"inputs[0]: shape {tensor['shape']} has {rows} elements, data has {len(texts)}")
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            raise BadRequest(f"inputs[0]: element {at} is a {_kind(text)}; expected a string")
        if len(text) > limits.text_bytes or len(text.encode("utf-8", "replace")) > limits.text_bytes:
            raise BadRequest(f"inputs[0]: element {at} is longer than {limits.text_bytes} bytes")
    return texts


def _rows(shape: Any) -> int:
    """n of [n] or [n, 1]."""
    whole = isinstance(shape, list) and all(isinstance(size, int) and not isinstance(size, bool) for size in shape)
    if not whole or not 1 <= len(shape) <= FLAT or shape[1:] not in ([], [1]) or shape[0] < 1:
        raise BadRequest(f"inputs[0]: shape {shape!r}; expected [n] or [n, 1] with n at least 1")
    return int(shape[0])


def _flatten(data: Any) -> list[Any]:
    """Tensor data may come flat in row-major order or nested as its shape."""
    if not isinstance(data, list):
        raise BadRequest(f"inputs[0]: data is a {_kind(data)}; expected a list of strings")
    if data and all(isinstance(row, list) and len(row) == 1 for row in data):
        return [row[0] for row in data]
    return data


def _outputs(data: dict[str, Any]) -> tuple[str, ...]:
    wanted = data.get("outputs")
    if wanted is None:
        return OUTPUTS
    if not isinstance(wanted, list) or not all(isinstance(output, dict) for output in wanted):
        raise BadRequest("outputs: expected a list of objects with a `name`")
    names = tuple(output.get("name") for output in wanted)
    for name in names:
        if name not in OUTPUTS:
            raise BadRequest(f"outputs: no output {name!r}; expected some of {', '.join(OUTPUTS)}")
    if len(set(names)) != len(names):
        raise BadRequest("outputs: a name comes twice")
    if any(_object(output, "parameters").get("binary_data") for output in wanted):
        raise BadRequest("outputs: binary tensors are not supported")
    return names or OUTPUTS


def _threshold(parameters: dict[str, Any], binary: bool) -> float | None:
    if parameters.get("binary_data_output"):
        raise BadRequest("parameters: binary tensors are not supported")
    known = ("threshold", "binary_data_output", *HARMLESS)
    if unknown := [name for name in parameters if name not in known]:
        raise BadRequest(f"parameters: {unknown[0]!r} is unknown; expected `threshold`")
    value = parameters.get("threshold")
    if value is None:
        return None
    if not binary:
        raise BadRequest("parameters: this model has no threshold: the most probable of its labels is given")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadRequest(f"parameters: threshold {value!r}; expected a number from 0 to 1")
    return float(value)


def _object(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest(f"{key} is a {_kind(value)}; expected an object")
    return value


def _kind(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return kinds.get(type(value), "null")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")

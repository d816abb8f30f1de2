"""Open Inference Protocol V2: what is taken, what is refused, what is answered."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from serving.engine import Answers
from serving.manifest import Manifest
from serving.protocol import OUTPUTS, BadRequest, InferRequest, RequestLimits, parse, respond

LIMITS = RequestLimits(rows=4, text_bytes=20, body_bytes=1000)


def body(data: Any = ("a", "b"), shape: Any = None, datatype: Any = "BYTES", name: Any = "text", **more: Any) -> bytes:
    shape = [len(data)] if shape is None else shape
    tensor = {"name": name, "shape": shape, "datatype": datatype, "data": data}
    return json.dumps({"inputs": [tensor], **more}).encode()


def test_a_plain_request() -> None:
    assert parse(body(), LIMITS, True) == InferRequest(None, ["a", "b"], OUTPUTS, None)


@pytest.mark.parametrize(
    ("data", "shape"), [(["a", "b"], [2, 1]), ([["a"], ["b"]], [2, 1]), ([["a"], ["b"]], [2]), (["a", "b"], [2])]
)
def test_flat_and_nested_data(data: Any, shape: list[int]) -> None:
    assert parse(body(data, shape), LIMITS, True).texts == ["a", "b"]


def test_everything_optional() -> None:
    asked = parse(
        body(id="7", parameters={"threshold": 1}, outputs=[{"name": "score"}, {"name": "label"}]), LIMITS, True
    )
    assert asked == InferRequest("7", ["a", "b"], ("score", "label"), 1.0)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"inputs": [{"shape": [NaN]}]}', "NaN is no JSON number"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "JSON array"),
        (b"{}", "exactly one tensor"),
        (b'{"inputs": []}', "exactly one tensor"),
        (b'{"inputs": [1]}', "exactly one tensor"),
        (body(name="txt"), "name 'txt'"),
        (body(datatype="FP32"), "datatype 'FP32'"),
        (body(datatype=None), "datatype None"),
        (body(shape=[3]), "3 elements, data has 2"),
        (body(shape=[2, 2]), "shape"),
        (body(shape=[2, 1, 1]), "shape"),
        (body(shape=[-1]), "shape"),
        (body(shape=["2"]), "shape"),
        (body(shape=[2.0]), "shape"),
        (body(shape=[True], data=["a"]), "shape"),
        (body(shape={}), "shape"),
        (body(data=[], shape=[0]), "at least 1"),
        (body(data=["a", 1]), "element 1 is a number"),
        (body(data=["a", None]), "element 1 is a null"),
        (body(data=[["a", "b"]], shape=[1]), "element 0 is a array"),
        (body(data="ab", shape=[2]), "data is a string"),
        (body(data=["a"] * 5), "5 rows; at most 4"),
        (body(data=["x" * 21]), "longer than 20 bytes"),
        (body(data=["é" * 11]), "longer than 20 bytes"),
        (body(id=5), "id is a number"),
        (body(outputs=[{"name": "logits"}]), "no output 'logits'"),
        (body(outputs=[{"name": {}}]), "no output"),
        (body(outputs=["label"]), "list of objects"),
        (body(outputs=[{"name": "label"}, {"name": "label"}]), "twice"),
        (body(outputs=[{"name": "label", "parameters": {"binary_data": True}}]), "binary"),
        (body(parameters={"binary_data_output": True}), "binary"),
        (body(parameters=[]), "parameters is a array"),
        (body(parameters={"treshold": 0.5}), "'treshold' is unknown"),
        (body(parameters={"threshold": 2}), "from 0 to 1"),
        (body(parameters={"threshold": True}), "from 0 to 1"),
        (body(parameters={"threshold": "0.5"}), "from 0 to 1"),
    ],
)
def test_bad_requests_say_what_is_wrong(bad: bytes, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        parse(bad, LIMITS, True)


def test_a_model_of_many_labels_has_no_threshold() -> None:
    with pytest.raises(BadRequest, match="no threshold"):
        parse(body(parameters={"threshold": 0.5}), LIMITS, False)


def test_lone_surrogates_pass_as_text() -> None:
    assert parse(body(data=["\ud83d!"]), LIMITS, True).texts == ["\ud83d!"]


def test_the_response_has_what_was_asked() -> None:
    probabilities = np.array([[0.25, 0.75], [0.9, 0.1]])
    answers = Answers(np.log(probabilities), probabilities, np.array([1, 0]), probabilities[:, 1], ("ham", "spam"))
    manifest = Manifest.model_construct(name="tiny", version="v1")
    asked = InferRequest("42", ["a", "b"], ("probabilities", "label"), None)
    assert respond(asked, answers, manifest) == {
        "model_name": "tiny",
        "model_version": "v1",
        "id": "42",
        "outputs": [
            {
                "name": "probabilities",
                "datatype": "FP32",
                "shape": [2, 2],
                "data": [0.25, 0.75, pytest.approx(0.9), pytest.approx(0.1)],
            },
            {"name": "label", "datatype": "BYTES", "shape": [2], "data": ["spam", "ham"]},
        ],
    }
    assert "id" not in respond(InferRequest(None, [], OUTPUTS, None), answers, manifest)

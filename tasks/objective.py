"""What the stages behind finetune ask of it."""

from __future__ import annotations

from data.errors import DaymillError

CLASSIFY = "classify"


def require_classifier(objective: str) -> None:
    """Raises DaymillError where finetune made a model that answers, which these stages cannot compress or release."""
    if objective != CLASSIFY:
        raise DaymillError(
            f"expected a classifier, but finetune.objective is {objective}: a model that answers is finished after the "
            "finetune stage. Run with `--until finetune`, or set finetune.objective to classify"
        )

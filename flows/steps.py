"""Steps of a flow that are no DVC stage: a failure that the user can mend is a state with a message, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.states import Cancelled, Failed

from data.errors import DaymillError
from flows.presets import UsageError

WRONG_USAGE = "WrongUsage"  # name of the state that becomes exit code 2

Given = ParamSpec("Given")
Found = TypeVar("Found")


class Stopped(Exception):
    """A step did not complete; `state` is what the flow ends with."""

    def __init__(self, state: State[Any]) -> None:
        super().__init__(state.message)
        self.state = state


def step(name: str) -> Callable[[Callable[Given, Found]], Task[Given, Found]]:
    """A task of this name whose DaymillError becomes a failed state."""

    def decorate(body: Callable[Given, Found]) -> Task[Given, Found]:
        @wraps(body)
        def run(*args: Given.args, **kwargs: Given.kwargs) -> Any:
            try:
                return body(*args, **kwargs)
            except DaymillError as error:
                return failed(error)

        return task(name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)(run)

    return decorate


def failed(error: DaymillError) -> State[Any]:
    return Failed(name=WRONG_USAGE if isinstance(error, UsageError) else "Failed", message=str(error))


def result_of(state: State[Found]) -> Found:
    """What a completed step found. Raises Stopped with a state of the flow's own (a task's: "1/1 states failed")."""
    if state.is_cancelled():
        raise Stopped(Cancelled(message=state.message))
    if not state.is_completed():
        raise Stopped(Failed(name=state.name, message=state.message))
    return state.result()

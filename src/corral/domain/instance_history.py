"""A run's state with the last steps to it: a step that the table refuses tells them. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.domain.instance_states import (
    FOUND_IN,
    INSTANCE_LIFECYCLE,
    InstanceState,
    InstanceTrigger,
)

STEPS_KEPT: Final = 8


class StateStep(msgspec.Struct, frozen=True, kw_only=True):
    trigger: InstanceTrigger
    state: InstanceState
    """That it led to."""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.trigger} -> {self.state}" + (f" ({self.reason})" if self.reason else "")


class StateHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run. Every change of its state is a step of the table."""

    subject: str
    """As a refusal names the run."""
    state: InstanceState = INSTANCE_LIFECYCLE.initial
    steps: tuple[StateStep, ...] = ()

    def stepped(self, trigger: InstanceTrigger, reason: str = "") -> StateHistory:
        """One step on; `IllegalTransition` with the last steps when the table has none."""
        state = INSTANCE_LIFECYCLE.step(self.subject, self.state, trigger, story=map(str, self.steps))
        step = StateStep(trigger=trigger, state=state, reason=reason)
        return msgspec.structs.replace(self, state=state, steps=(*self.steps, step)[-STEPS_KEPT:])

    def found(self, state: InstanceState, reason: str = "") -> StateHistory:
        """Nobody watched the run for a while, and it was found in this state: whatever it was in before, if it had
        not ended."""
        return self.stepped(InstanceTrigger.UNWATCHED).stepped(FOUND_IN[state], reason)

    def ended(self, state: InstanceState, reason: str = "") -> StateHistory:
        """Nothing of the run is left, and this is how. The same end, told again, is no step."""
        return self if self.state is state else self.stepped(FOUND_IN[state], reason)

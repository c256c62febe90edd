"""The two axes of a node: whether it is reachable, and whether it accepts instances."""

from __future__ import annotations

import enum
from typing import Final

from corral.domain.lifecycle import Lifecycle


class NodeState(enum.StrEnum):
    """Whether the controller can reach the node."""

    ENROLLED = "ENROLLED"  # holds a certificate, never connected
    ONLINE = "ONLINE"  # has a live session
    DISCONNECTED = "DISCONNECTED"  # its stream ended
    UNREACHABLE = "UNREACHABLE"  # its stream fell silent
    REVOKED = "REVOKED"  # its certificates are refused


class NodeTrigger(enum.StrEnum):
    SESSION_OPENED = "session_opened"
    STREAM_ENDED = "stream_ended"
    PONGS_MISSED = "pongs_missed"
    REVOKE = "revoke"
    ENROL_AGAIN = "enrol_again"


_S, _T = NodeState, NodeTrigger

NODE_LIFECYCLE: Final = Lifecycle(
    name="node",
    initial=_S.ENROLLED,
    terminal=(),
    transitions={
        (_S.ENROLLED, _T.SESSION_OPENED): _S.ONLINE,
        (_S.ENROLLED, _T.REVOKE): _S.REVOKED,
        (_S.ENROLLED, _T.ENROL_AGAIN): _S.ENROLLED,
        (_S.ONLINE, _T.SESSION_OPENED): _S.ONLINE,
        (_S.ONLINE, _T.STREAM_ENDED): _S.DISCONNECTED,
        (_S.ONLINE, _T.PONGS_MISSED): _S.UNREACHABLE,
        (_S.ONLINE, _T.REVOKE): _S.REVOKED,
        (_S.ONLINE, _T.ENROL_AGAIN): _S.ENROLLED,
        (_S.DISCONNECTED, _T.SESSION_OPENED): _S.ONLINE,
        (_S.DISCONNECTED, _T.PONGS_MISSED): _S.UNREACHABLE,
        (_S.DISCONNECTED, _T.REVOKE): _S.REVOKED,
        (_S.DISCONNECTED, _T.ENROL_AGAIN): _S.ENROLLED,
        (_S.UNREACHABLE, _T.SESSION_OPENED): _S.ONLINE,
        (_S.UNREACHABLE, _T.STREAM_ENDED): _S.UNREACHABLE,
        (_S.UNREACHABLE, _T.REVOKE): _S.REVOKED,
        (_S.UNREACHABLE, _T.ENROL_AGAIN): _S.ENROLLED,
        (_S.REVOKED, _T.ENROL_AGAIN): _S.ENROLLED,
    },
)


class Admission(enum.StrEnum):
    """Whether the node accepts new instances."""

    OPEN = "open"
    CORDONED = "cordoned"
    DRAINING = "draining"
    DRAINED = "drained"


EMPTIED: Final = frozenset({Admission.DRAINING, Admission.DRAINED})
"""An operator has ordered that nothing is to be on the node."""


class AdmissionTrigger(enum.StrEnum):
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    EMPTIED = "emptied"
    UNDRAIN = "undrain"
    UNDRAIN_CORDONED = "undrain_cordoned"  # it was cordoned before


_A, _D = Admission, AdmissionTrigger

ADMISSION_LIFECYCLE: Final = Lifecycle(
    name="admission",
    initial=_A.OPEN,
    terminal=(),
    transitions={
        (_A.OPEN, _D.CORDON): _A.CORDONED,
        (_A.OPEN, _D.UNCORDON): _A.OPEN,
        (_A.OPEN, _D.DRAIN): _A.DRAINING,
        (_A.CORDONED, _D.CORDON): _A.CORDONED,
        (_A.CORDONED, _D.UNCORDON): _A.OPEN,
        (_A.CORDONED, _D.DRAIN): _A.DRAINING,
        (_A.DRAINING, _D.DRAIN): _A.DRAINING,
        (_A.DRAINING, _D.EMPTIED): _A.DRAINED,
        (_A.DRAINING, _D.UNDRAIN): _A.OPEN,
        (_A.DRAINING, _D.UNDRAIN_CORDONED): _A.CORDONED,
        (_A.DRAINED, _D.DRAIN): _A.DRAINED,
        (_A.DRAINED, _D.UNDRAIN): _A.OPEN,
        (_A.DRAINED, _D.UNDRAIN_CORDONED): _A.CORDONED,
    },
)

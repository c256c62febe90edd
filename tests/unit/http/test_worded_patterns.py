"""Values that do not match a pattern are refused in words, and not with the pattern."""

from __future__ import annotations

import msgspec
import pytest

from corral.controller.http.messages.call import RequestBody
from corral.controller.http.messages.request_decoder import BodyDecoder
from corral.controller.http.resources.instances.commands import CommandExecution
from corral.controller.http.resources.instances.console_sockets import ConsoleInput
from corral.controller.http.resources.instances.instances import CommandLine, Why
from corral.errors import Code, Rejected


def refusal(type: type[RequestBody], body: dict[str, object]) -> Rejected:
    with pytest.raises(Rejected) as caught:
        BodyDecoder(type).decode(msgspec.json.encode(body))
    assert caught.value.code is Code.INVALID_FIELD
    return caught.value


@pytest.mark.parametrize("type", [CommandLine, CommandExecution, ConsoleInput])
@pytest.mark.parametrize("line", ["say a\nstop", "say a\n", "say a\rstop", "say \0"])
def test_a_command_with_a_line_break_or_nul_is_refused_with_the_rule_for_commands(
    type: type[RequestBody], line: str
) -> None:
    refused = refusal(type, {"command": line})
    assert refused.message == "field 'command' is invalid: a command is one line without NUL"
    assert refused.hint == "send each line as a command of its own"
    assert refused.field == "command"


def test_a_text_for_people_with_a_control_character_is_refused_in_words() -> None:
    refused = refusal(Why, {"reason": "because\x1b[2J"})
    assert "regex" not in refused.message
    assert "control or invisible character" in refused.message


def test_a_value_that_is_too_long_is_refused_for_its_length() -> None:
    assert "length <= 4095" in refusal(CommandLine, {"command": "x" * 4096}).message

"""Rules of parameters: decoded strictly, refused with a path and without what was sent."""

import msgspec
import pytest

from protocol import commands as cmd
from protocol.errors import RuleViolation


@pytest.mark.parametrize("method", cmd.METHODS, ids=str)
def test_an_unknown_field_is_refused_by_every_method_and_not_repeated(method: str) -> None:
    required = {"protocol": 1, "session": "s", "text": "x", "ask": "a", "name": "n", "payload": {}}
    kind = cmd.METHODS[method]
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}
    good = {name: value for name, value in required.items() if name in fields}
    assert isinstance(cmd.read_params(kind, msgspec.json.encode(good)), kind)
    with pytest.raises(RuleViolation, match=r"^command\.invalid: Object contains unknown field$"):
        cmd.read_params(kind, msgspec.json.encode({**good, "evil\u202e": 1}))


@pytest.mark.parametrize(
    ("kind", "raw", "path", "message"),
    [
        (cmd.Prompt, b"[]", "", "Expected `object`, got `array`"),
        (cmd.Prompt, b'{"session":"s"}', "", "Object missing required field `text`"),
        (cmd.Prompt, b'{"session":"s","text":1}', "text", "Expected `str`, got `int`"),
        (cmd.Prompt, b'{"session":"s","text":"x","when_busy":"evil"}', "when_busy", "Invalid enum value"),
        (cmd.Prompt, b'{"session":"s","text":"x","max_turns":0}', "max_turns", "Expected `int` >= 1"),
        (cmd.Answer, b'{"session":"s","ask":"a","outcome":"evil\\nline"}', "outcome", "Invalid enum value"),
        (cmd.Attach, b'{"session":"s","cursor":-1}', "cursor", "Expected `int` >= 0"),
        (cmd.Attach, b'{"session":"s","cursor":9007199254740992}', "cursor", "Expected `int` <= 9007199254740991"),
        (cmd.Open, b'{"command":""}', "command", "Expected `str` of length >= 1"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(kind: type[cmd.Params], raw: bytes, path: str, message: str) -> None:
    with pytest.raises(RuleViolation) as refused:
        cmd.read_params(kind, raw)
    assert refused.value.message == message
    assert [(detail.path, detail.code, detail.message) for detail in refused.value.details] == [
        (path, "invalid", message)
    ]


@pytest.mark.parametrize("raw", [b'{"session":"s","text":"\\ud800"}', b'{"session":"s","text":"\xff"}', b"{"])
def test_what_is_no_json_is_refused_as_wrong_parameters(raw: bytes) -> None:
    with pytest.raises(RuleViolation, match=r"^command\.invalid: parameters cannot be read: "):
        cmd.read_params(cmd.Prompt, raw)


@pytest.mark.parametrize("offered", [1, [1], [2, 1], [1, 2]])
def test_the_first_known_version_is_spoken(offered: int | list[int]) -> None:
    assert cmd.choose_version(offered) == 1


@pytest.mark.parametrize(("offered", "named"), [(2, "2"), ([], "none"), ([2, 3], "2, 3")])
def test_no_known_version_is_refused_and_the_known_are_listed(offered: int | list[int], named: str) -> None:
    with pytest.raises(RuleViolation, match=rf"^protocol\.unsupported: protocol {named} is not known; known: 1$") as no:
        cmd.choose_version(offered)
    assert [detail.message for detail in no.value.details] == ["1"]

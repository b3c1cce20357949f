"""How sessions are opened: what the rest of it does is in `test_agent.py` and the scenarios."""

import pytest
from trio.testing import MockClock

from actors import ScriptedModel, open_agent
from actors.agent.memory import MemoryLog, MemoryStore
from protocol.errors import RuleViolation


class Broken(MemoryStore):
    def __init__(self, *, load: bool) -> None:
        super().__init__()
        self.load_fails = load

    async def load(self, session_id: str) -> MemoryLog | None:
        if self.load_fails:
            raise OSError("no disk")
        return await super().load(session_id)

    def create(self, session_id: str, log_id: str) -> None:
        raise OSError("no disk")


@pytest.mark.parametrize("load", [True, False])
async def test_a_store_that_cannot_open_a_log_refuses_with_its_code(
    load: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = Broken(load=load)
    async with open_agent(ScriptedModel([]), store=store) as agent:
        for _ in range(2):  # and nothing is left that would be in the way of the next try
            with pytest.raises(RuleViolation, match=r"^store.failed: session 's' could not be loaded: OSError$"):
                await agent.open("s")
        assert agent.find("s") is None

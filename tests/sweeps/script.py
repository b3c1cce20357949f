"""What the model says in the scenarios of agents. It must not know what happens to them."""

from collections.abc import Sequence

from actors import ModelRequest, ScriptedModel, UserMessage
from actors.models.scripted import Step, Turn, say


def script(turns: Sequence[Turn]) -> ScriptedModel:
    """Return a model that says these turns in each run, and `fine` to the prompt `again`."""

    def turn(request: ModelRequest) -> Step | Sequence[Step]:
        said = [message.content for message in request.messages if isinstance(message, UserMessage)]
        prompts = [text for text in said if text in ("go", "again")]  # not what a run was steered with
        if prompts[-1:] == ["again"]:
            return say("fine")
        chosen = turns[min(request.turn, len(turns)) - 1]
        return chosen(request) if callable(chosen) else chosen

    return ScriptedModel([turn], repeat=True)

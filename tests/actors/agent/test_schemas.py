"""From a typed function to a schema a provider takes."""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from actors.agent.schemas import MAX_DETAILS, build_schema, details, read_docstring, read_signature

if TYPE_CHECKING:
    from elsewhere import Missing  # type: ignore[import-not-found]

    from actors.agent.context import AgentRunContext


class Colour(Enum):
    RED = "red"


class Leaf(BaseModel):
    """A leaf."""

    title: str
    colour: Colour = Colour.RED


class Tree(BaseModel):
    leaf: Leaf = Field(description="The one leaf.")
    more: list[Leaf] | None = None


class Knot(BaseModel):
    knots: "list[Knot]" = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Zoo(BaseModel):
    animal: Annotated[Cat | Dog, Field(discriminator="kind")]


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    return build_schema(read_signature(function, "work").model, "work", read_docstring(function)[1])


def test_a_docstring_gives_its_first_paragraph_and_its_arguments() -> None:
    def work(a: int, b: str) -> None:
        """Do the
        work.

        More about it.

        Args:
            a: How often,
                and how long: in seconds.
            b (str, optional): Which.
              Really.

        Returns:
            c: nothing
        """

    assert read_docstring(work) == (
        "Do the work.",
        {"a": "How often, and how long: in seconds.", "b": "Which. Really."},
    )


def test_a_docstring_may_begin_with_its_arguments_or_be_missing() -> None:
    def first() -> None:
        """
        Args:
            loose words
            a: x
        """

    def second() -> None: ...

    assert read_docstring(first) == ("", {"a": "x"})
    assert read_docstring(second) == ("", {})


def test_a_schema_has_no_titles_and_no_references_but_properties_called_title_stay() -> None:
    def work(tree: Tree, count: Annotated[int, Field(ge=1, description="own")] = 3) -> None:
        """Work.

        Args:
            tree: The tree.
            count: not used
            stranger: not a parameter
        """

    leaf = {
        "description": "A leaf.",
        "properties": {"title": {"type": "string"}, "colour": {"default": "red", "enum": ["red"], "type": "string"}},
        "required": ["title"],
        "type": "object",
    }
    assert schema_of(work) == {
        "additionalProperties": False,
        "properties": {
            "tree": {
                "description": "The tree.",
                "properties": {
                    "leaf": {**leaf, "description": "The one leaf."},
                    "more": {"anyOf": [{"items": leaf, "type": "array"}, {"type": "null"}], "default": None},
                },
                "required": ["leaf"],
                "type": "object",
            },
            "count": {"default": 3, "description": "own", "minimum": 1, "type": "integer"},
        },
        "required": ["tree"],
        "type": "object",
    }


def test_a_discriminator_loses_its_references() -> None:
    animal = build_schema(Zoo, "zoo")["properties"]["animal"]
    assert set(animal) == {"oneOf"}
    assert [one["properties"]["kind"]["const"] for one in animal["oneOf"]] == ["cat", "dog"]


@pytest.mark.parametrize(
    ("annotation", "path"),
    [
        (list, "options"), (list[Any], "options"), (list[list[Any]], "options[]"), (dict[str, list[Any]], "options.*"),
        (list | None, "options"), (tuple[int, str], "options"),
    ],
)  # fmt: skip
def test_an_array_without_element_type_fails_with_its_path_f27(annotation: Any, path: str) -> None:
    def work(options: Any) -> None: ...

    work.__annotations__["options"] = annotation
    with pytest.raises(ValueError, match=r"^tool 'work': the (elements of the )?array ") as caught:
        schema_of(work)
    assert f"{path!r}" in str(caught.value)


def test_an_array_hidden_in_a_model_fails_with_its_path_f27() -> None:
    class Arguments(BaseModel):
        options: Annotated[list[str], Field(json_schema_extra={"items": {}})]

    with pytest.raises(ValueError, match=r"^tool 't': the elements of the array 'options' have no type; write list\["):
        build_schema(Arguments, "t")


def test_a_type_that_contains_itself_is_refused_by_path() -> None:
    def work(knot: Knot) -> None: ...

    text = r"^tool 'work': knot.knots\[\] contains itself \(Knot\); give it a bounded type$"
    with pytest.raises(ValueError, match=text):
        schema_of(work)


def test_a_value_that_is_not_json_does_not_get_into_a_schema() -> None:
    def work(limit: float = float("inf"), key: object = object, seen: float = 0.5) -> None: ...

    properties = schema_of(work)["properties"]
    assert properties == {"limit": {"type": "number"}, "key": {}, "seen": {"type": "number", "default": 0.5}}

    class Arguments(BaseModel):
        limit: Annotated[float, Field(json_schema_extra={"examples": [float("nan")]})]

    with pytest.raises(ValueError, match=r"^tool 't': its schema cannot be written as JSON: "):
        build_schema(Arguments, "t")


def test_a_type_without_a_schema_is_refused() -> None:
    def work(call: Callable[[], int]) -> None: ...

    with pytest.raises(TypeError, match=r"^tool 'work': a parameter has a type without a schema: "):
        schema_of(work)

    class Strange: ...

    def other(thing: Strange) -> None: ...

    with pytest.raises(TypeError, match=r"^tool 'other': a parameter has a type without a schema: "):
        read_signature(other, "other")


def test_parameters_may_be_called_like_pydantics_own() -> None:
    def work(schema: str, copy: int, model_config: int, _private: int, p0: int) -> None: ...

    signature = read_signature(work, "work")
    given = {"schema": "s", "copy": 1, "model_config": 2, "_private": 3, "p0": 4}
    model = signature.model.model_validate(given)
    assert [getattr(model, field) for _, field in signature.parameters if field] == ["s", 1, 2, 3, 4]
    assert list(build_schema(signature.model, "work")["properties"]) == list(given)


class _RunContext:
    pass


_RunContext.__name__ = "AgentRunContext"


class _OwnContext(_RunContext):
    pass


@pytest.mark.parametrize(
    "annotation",
    [
        "AgentRunContext", "context.AgentRunContext", "'AgentRunContext'", "AgentRunContext | None",
        "AgentRunContext[int]", _RunContext, _OwnContext, _RunContext | None, Optional["AgentRunContext"],
    ],
)  # fmt: skip
def test_the_context_is_recognised_by_name(annotation: Any) -> None:
    def work(ctx: Any, a: int) -> None: ...

    work.__annotations__["ctx"] = annotation
    signature = read_signature(work, "work")
    assert [field for _, field in signature.parameters] == [None, "p1"]
    assert list(build_schema(signature.model, "work")["properties"]) == ["a"]


_Alias = _RunContext


def test_the_context_is_recognised_under_another_name() -> None:
    def work(ctx: "_Alias") -> None: ...

    assert read_signature(work, "work").parameters[0][1] is None


def test_the_real_context_is_recognised_though_it_is_imported_for_types_only() -> None:
    def work(ctx: "AgentRunContext", a: "int") -> None: ...

    assert [field for _, field in read_signature(work, "work").parameters] == [None, "p1"]


def test_functions_that_cannot_be_described_are_refused() -> None:
    def bare(a) -> None: ...  # type: ignore[no-untyped-def]

    def context(context) -> None: ...  # type: ignore[no-untyped-def]

    def collects(*args: int) -> None: ...

    def keywords(**options: int) -> None: ...

    def missing(a: "Missing") -> None: ...

    def default(a: int = Field(ge=1)) -> None: ...

    for function, text in [
        (bare, "'a' has no annotation, so its schema is unknown"),
        (
            context,
            "'context' has no annotation, so its schema is unknown; annotate it `AgentRunContext` to be given the "
            "run's context",
        ),
        (collects, "'args' collects arguments; a tool names each of its parameters"),
        (keywords, "'options' collects arguments; a tool names each of its parameters"),
        (missing, "'a' name 'Missing' is not defined; define the type at module level"),
        (default, "'a' has a pydantic Field as default; write Annotated[type, Field(...)] = value"),
    ]:
        with pytest.raises(TypeError) as caught:
            read_signature(function, "work")
        assert str(caught.value).replace("': ", "' ") == f"tool 'work' parameter {text}".replace("': ", "' ")


def test_partials_and_methods_are_resolved_in_their_functions_module() -> None:
    class Holder:
        def work(self, colour: "Colour") -> None: ...

    def work(ctx: int, colour: "Colour") -> None: ...

    for function in (Holder().work, partial(work, 1)):
        assert build_schema(read_signature(function, "w").model, "w")["properties"]["colour"]["enum"] == ["red"]


# ---- what is wrong with arguments


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    content: Annotated[str, Field(min_length=1)]
    status: Literal["pending", "done"]


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    todos: list[Item]
    either: int | list[Item] = 0
    animal: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None


def wrong(arguments: dict[str, Any]) -> list[tuple[str, str, str]]:
    with pytest.raises(ValidationError) as caught:
        Arguments.model_validate(arguments)
    return [(one.path, one.code, one.message) for one in details(caught.value, arguments)]


def test_details_say_where_and_what_without_the_value() -> None:
    secret = "hunter2" * 100
    found = wrong({"todos": [{"content": "", "status": secret}, {"content": {"a": secret}}], "extra": secret})
    assert found == [
        ("todos[0].content", "string_too_short", "String should have at least 1 character"),
        ("todos[0].status", "literal_error", "Input should be 'pending' or 'done' (got string)"),
        ("todos[1].content", "string_type", "Input should be a valid string (got object)"),
        ("todos[1].status", "missing", "Field required"),
        ("extra", "extra_forbidden", "Extra inputs are not permitted"),
    ]


def test_a_path_has_no_names_of_union_branches() -> None:
    found = wrong({"todos": [], "either": [{"content": "a"}]})
    assert [path for path, _, _ in found] == ["either", "either[0].status"]


def test_a_wrong_tag_is_not_repeated() -> None:
    assert wrong({"todos": [], "animal": {"kind": "hunter2"}}) == [
        ("animal", "union_tag_invalid", "'kind' should be one of 'cat', 'dog'")
    ]


def test_details_are_few_and_short() -> None:
    found = wrong({"todos": [], **{f"{i}{'x' * 100}": 1 for i in range(50)}})
    assert len(found) == MAX_DETAILS
    assert all(len(path) == 64 and path.endswith("…") for path, _, _ in found)

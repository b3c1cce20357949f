"""The queue beside a plain list of pairs."""

from hypothesis import given
from hypothesis import strategies as st

from actors.runtime.keyed import KeyedQueue

STEPS = st.tuples(
    st.sampled_from(["append", "send", "send", "send", "popleft", "put before", "remove"]), st.sampled_from("abc")
)


@given(st.lists(STEPS, max_size=60))
def test_a_message_is_found_by_its_key_wherever_the_others_went(steps: list[tuple[str, str]]) -> None:
    queue: KeyedQueue[int] = KeyedQueue()
    model: list[tuple[int, str | None, int]] = []
    for n, (step, key) in enumerate(steps):
        match step:
            case "append":
                queue.append(n)
                model.append((n, None, 0))
            case "send" if queue.waited_before(key) is None:
                queue.append(n)
                queue.mark_last(key, 10 * n)
                model.append((n, key, 10 * n))
            case "send":
                place = [k for _, k, _ in model].index(key)
                assert queue.replace(key, n, 10 * n) == model[place][0]
                model[place] = (n, key, 10 * n)
            case "popleft" if queue:
                assert queue.popleft() == model.pop(0)[0]
            case "put before":
                queue.extendleft([1000 + n, 2000 + n])
                model[:0] = [(2000 + n, None, 0), (1000 + n, None, 0)]
            case "remove" if queue:
                gone = queue[n % len(queue)]
                queue = queue.without({id(message) for message in queue if message == gone})
                model = [entry for entry in model if entry[0] != gone]
            case _:
                pass
        assert list(queue) == [message for message, _, _ in model]
        for letter in "abc":
            assert queue.waited_before(letter) == next((waited for _, k, waited in model if k == letter), None)


def test_a_queue_keeps_nothing_of_keys_that_have_left() -> None:
    queue: KeyedQueue[int] = KeyedQueue()
    for n in range(10_000):
        queue.append(n)
        queue.mark_last(n, 0)
        queue.popleft()
    assert not queue._places
    assert not queue._keys

"""`python -m bench.peers MODULE LOAD N REPEATS`: put one load on one library and print its figures as JSON."""

import gc
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence


def main(argv: Sequence[str]) -> int:
    """Measure, print, return the exit code."""
    module, load, n, repeats = argv
    loads: Mapping[str, Callable[[int], float]] = importlib.import_module(f"bench.peers.{module}").LOADS
    values: list[float] = []
    for _ in range(int(repeats)):
        gc.collect()
        values.append(loads[load](int(n)))
    print(json.dumps(values))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

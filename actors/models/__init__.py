"""Models that need no network: a scripted one for tests and benchmarks, and the embedded default."""

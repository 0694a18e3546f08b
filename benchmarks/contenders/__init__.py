"""The libraries that the benchmarks time, each behind one small door: ``make(case) -> run``."""

"""One schedule of falls and time limits, played in many simulators."""

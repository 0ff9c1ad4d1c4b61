"""The names that tests use: `test`, `Skip`, `World`, and small network clients."""

from .registry import Skip, test
from .world import World

__all__ = ["Skip", "World", "test"]

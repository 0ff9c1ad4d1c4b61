"""The page of programs: which there are, how they are run, and the table that comes out."""

from .catalogue import Outcome, entry

__all__ = ["Outcome", "entry"]

"""The page of programs: which there are, how they are run, and the table that comes out."""

from .catalogue import Outcome, absent, entry

__all__ = ["Outcome", "absent", "entry"]

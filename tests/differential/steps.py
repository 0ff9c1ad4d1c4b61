"""The steps of which sequences consist."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Call:
    """A socket call of the puppet."""

    name: str
    words: tuple = ()

    def text(self):
        return " ".join([self.name, *map(str, self.words)])


@dataclass
class Script:
    protocol: str
    seed: int
    steps: list = field(default_factory=list)

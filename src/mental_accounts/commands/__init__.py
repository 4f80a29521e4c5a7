"""One file a family of commands: a dataclass each, with `execute`. No logic of their own."""

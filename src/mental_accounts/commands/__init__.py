"""One file per family of commands, one dataclass with `execute` per command. No logic of their own."""

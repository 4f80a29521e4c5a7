"""One file per family of commands, one dataclass with `execute` per command. No logic of their own.

The arguments and their help are light to import; `execute` imports what does the work. So `--help` and a mistyped flag
do not wait for PyTorch.
"""

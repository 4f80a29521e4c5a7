"""The formats of exported programs; light to import, since the command line offers them."""

from typing import Literal

ExportFormat = Literal["torch-export", "onnx"]
FILES: dict[ExportFormat, str] = {"torch-export": "policy.pt2", "onnx": "policy.onnx"}
"""The file of each."""

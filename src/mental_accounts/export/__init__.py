"""Policies that leave: to the Hub with a card, as torch.export or ONNX programs."""

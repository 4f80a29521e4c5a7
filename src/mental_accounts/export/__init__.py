"""Exporting policies: to the Hub with a model card, or as torch.export and ONNX programs."""

"""The stub's torch.nn."""

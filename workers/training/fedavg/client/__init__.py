"""A client's end of a round: its rows as tensors, local training, losses, curvature."""

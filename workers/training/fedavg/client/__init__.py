"""The client side of a round: its rows as tensors, local training, losses, curvature."""

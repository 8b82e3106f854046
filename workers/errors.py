"""Every error the mathematics raises on purpose."""


class ModelError(Exception):
    """Root of the errors raised in the pure rooms of `workers`; anything else is a bug."""


class RefusedError(ModelError):
    """A method or a check declined its input. The message names the cause and the remedy."""

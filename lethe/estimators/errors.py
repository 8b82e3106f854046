"""Errors of the estimators."""

from lethe.errors import LetheError


class EstimatorInputError(LetheError, ValueError):
    """Rows, ids or parameters that no exact model can be fitted to; the model is unchanged.

    Also a ValueError, because scikit-learn's callers catch that.
    """

    slug, title, status = "estimator-input", "Not accepted by the estimator", 400

"""What estimators refuse."""

from lethe.errors import LetheError


class EstimatorInputError(LetheError, ValueError):
    """Rows, ids or parameters that no exact model can be fitted to; the model is as it was.

    A ValueError as well, because that is what scikit-learn's callers catch.
    """

    slug = "estimator-input"
    title = "Not accepted by the estimator"
    status = 400

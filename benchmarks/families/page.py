"""The Markdown page of a run."""

from collections.abc import Mapping
from typing import Any

from benchmarks.families.measure import Figures

HEAD = """# Families of tables

Each family beside the library that people would use, measured by
`python -m benchmarks.families --json FILE --page FILE`; `--data FILE` adds rows.

Accuracy is by cross-validation on the same folds; of numbers it is R², of a vector index it is
recall@10 beside exhaustive search. Times are of processors. Fit: the family's beside the
reference's. Deletion: how many times faster one deletion is than the family's own fit, over the
first three; verified: with the verifier's own fit.

- Recipes, scripts and HNSW are fitted again: a deletion is a fit. Of shards one of eight is.
- `forest` is the estimator without a server. Its first deletion builds the tree of the retained
  set, once; see [estimators](../estimators.md#cost) for later ones. `forest-service` is the
  forest as workers update it: most of a deletion opens and seals its state, once for all
  requests that are executed together.
- Ridge, naive Bayes and flat indexes fit so fast that what a deletion reads and writes costs as
  much as a fit.
- One fit of the verifier's serves all requests that are executed together.
- Multinomial naive Bayes is not measured where a feature is negative.
"""


def page(document: Mapping[str, Any]) -> str:
    """Return the Markdown page of a run's JSON."""
    if document["quick"]:
        extent = "A quick run: breast_cancer and diabetes, two folds"
    else:
        extent = "A whole run: five folds, of the made rows two"
    lines = [*HEAD.splitlines(), "", f"{extent}, on {document['processor']}."]
    columns = ("family", "rows", "accuracy", "reference", "fit", "deletion", "verified")
    names = dict.fromkeys(one for own in document["families"].values() for one in own)
    for name in names:
        lines += ["", f"## {name}", "", f"| {' | '.join(columns)} |", "|---" * 7 + "|"]
        for family, own in document["families"].items():
            if name in own:
                found = Figures(**own[name])
                lines.append(
                    f"| {family} | {found.rows:,} | {found.accuracy:.4f} "
                    f"| {found.accuracy_reference:.4f} | {found.fit_seconds_ratio:.2f} "
                    f"| {found.delete_speedup:.1f} | {found.verified_delete_speedup:.2f} |"
                )
    return "\n".join(lines) + "\n"

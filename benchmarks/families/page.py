"""The Markdown page of a run."""

from collections.abc import Mapping
from typing import Any

from benchmarks.families.measure import Figures

HEAD = """# Families of tables

Each family beside the library that people would use, measured by
`python -m benchmarks.families --json FILE --page FILE`; `--data FILE` adds rows.

Accuracy is by cross-validation on the same folds; of a vector index it is recall@10 beside
exhaustive search. Times are of processors. Fit: the family's beside the reference's. Deletion:
how many times faster one deletion is than the family's own fit; verified: with the verifier's
own fit.
"""


def page(document: Mapping[str, Any]) -> str:
    """Return the Markdown page of a run's JSON."""
    if document["quick"]:
        extent = "A quick run: breast_cancer, two folds"
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

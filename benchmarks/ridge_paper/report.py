"""Results as the generated part of a page, between two markers that keep the prose."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.paper_figures import HEAD, NONE, figures, footnote, rows_of
from benchmarks.ridge_paper import findings, not_measured
from benchmarks.ridge_paper.chunks import FEW, SHARE, Chunks
from benchmarks.ridge_paper.contenders import OURS, PAPER, REFIT
from benchmarks.ridge_paper.continual import (
    ANALYTIC,
    ANOTHER_SEED,
    BASELINES,
    MOST_ROWS,
    NO_METHOD,
    Continual,
)
from benchmarks.ridge_paper.continual import PARTS as GAPS
from benchmarks.ridge_paper.cost import ClaimedCosts
from benchmarks.ridge_paper.linear_heads import EXACT_FUN, FATS, FEDAVG, FEDERATED
from benchmarks.ridge_paper.messages import BATCH, Messages
from benchmarks.ridge_paper.results import Results
from benchmarks.ridge_paper.skips import SMALL, Skips
from benchmarks.ridge_paper.stream import StreamResult
from benchmarks.ridge_paper.table3 import CENTRAL, EXACT
from benchmarks.ridge_paper.table3 import AccuracyRow as Accuracy
from benchmarks.ridge_paper.table4 import DeviationRow as Partition
from benchmarks.ridge_paper.width import Width

BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"

# The papers' settings as paper_figures.json has them, and which data set stands beside which.
SETTING, WRITERS = "100 clients", "FeMNIST, 100 writers"
FORGOTTEN = "CIFAR-100, 10,000 samples forgotten"
TABLE3 = {"cifar10": "CIFAR-10"}
TIMES = """\
Paper: seconds that ACU's section 4.3 gives in its text, CIFAR-100, 10,000 samples forgotten.
It also gives 815.13 and 2769.09 s for NegGrad+, and 5,400 s for each retraining of its
network. The rest of its figures 3 and 4, and the ridge paper's figures 2 and 3, are pictures;
of a chunk the latter's text has Variant A's seconds, for 100 clients. –: no figure in the text.
"""
VARIANTS = PAPER[:2]  # A and B
ORDER_HEAD = (
    *("variant", "bytes here", "operations of the server here"),
    *("paper: communication", "paper: server computation"),
)
ORDERS = {
    "Variant A": (
        "8 (d² + dc)",
        "d³/3 + 2d²c",
        "d² + dc for each client",
        "d³, Cholesky solve",
    ),
    "Variant B": (
        "8 (kd + dc)",
        "4kd² + 3k²d + k³/3 + 4kdc + 2d²c",
        "kd + dc for each client",
        "kd², SMW update",
    ),
}
NATURAL = ("debsections",)  # with clients of its own, as FeMNIST has its writers


def write_page(results: Results, pictures: Sequence[str], page: Path) -> None:
    """Replace what stands between the markers of a page, or start one."""
    text = page.read_text() if page.exists() else f"# Ridge benchmarks\n\n{BEGIN}\n{END}\n"
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"{page.name} has no markers {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{render(results, pictures)}\n{END}{after}")


def render(results: Results, pictures: Sequence[str]) -> str:
    """Return Markdown of everything measured."""
    parts = [_summary(results), findings.render(results)]
    if results.table3:
        parts.append(_table3(results.table3))
    if results.table4:
        parts.append(_table4(results.table4))
    if results.stream:
        parts.append(_table5(results.stream) + _picture(pictures, "ridge-figure3.png", FIGURE3))
    if results.skips:
        parts.append(_skips(results.skips, results.stream))
    if results.chunks:
        parts.append(_chunks(results.chunks, pictures))
    if results.continual:
        parts.append(_continual(results.continual, pictures))
    if results.messages:
        parts.append(_messages(results.messages, results.stream))
        parts.append(_sketches(results.messages))
    if results.width:
        parts.append(_width(results.width) + _picture(pictures, "acu-width.png", WIDTH))
    if results.cost:
        parts.append(_cost(results.cost[0]) + _picture(pictures, "deletion-by-n.png", BY_N))
    return "\n".join([*parts, not_measured.render()])


FIGURE3 = "Figure 3: cumulative time of single deletions by each method, logarithmic"
WIDTH = "Time and peak memory of ACU by the width of its random features"
BY_N = "One deletion by Variant B costs the same at every number of rows; a refit grows"


def _summary(results: Results) -> str:
    bits = results.exact_bits()
    size = "a quick run on a small part, only to see that it works" if results.quick else "full"
    lines = [
        f"Run: {size}. {results.machine.get('processor', '')}, Python "
        f"{results.machine.get('python', '')}, NumPy {results.machine.get('numpy', '')}. "
        f"{sum(results.seconds.values()) / 60:.0f} minutes.",
        "",
    ]
    if bits:
        lines += [
            f"**The exact ledger and its retraining differ in {sum(bits)} bits**, in "
            f"{len(bits)} comparisons of their files (statistics and head).",
            "",
        ]
    return "\n".join(lines)


def _table3(rows: list[Accuracy]) -> str:
    names = (CENTRAL, FEDAVG, FATS, EXACT_FUN, *PAPER, EXACT)
    head = ("data", "n", "d", "c", *names, HEAD)
    body = [
        (
            row.data,
            f"{row.rows:,}",
            str(row.dimension),
            str(row.classes),
            *(f"{row.accuracy[name]:.4f}" for name in names),
            figures("Ridge 3", SETTING, TABLE3.get(row.data, "")),
        )
        for row in rows
    ]
    shown = {TABLE3.get(row.data) for row in rows}
    body += [
        (name, "not run", *[""] * (len(head) - 3), figures("Ridge 3", SETTING, name))
        for name in rows_of("Ridge 3", SETTING)
        if name not in shown
    ]
    about = "\n".join(
        f"- {row.data}: {row.about}; {row.test_rows:,} test rows." for row in rows
    )
    return (
        f"## Table 3: test accuracy, 100 clients\n\n{_table(head, body)}\n{about}\n\n"
        f"{footnote('Ridge 3', SETTING)}"
    )


def _table4(rows: list[Partition]) -> str:
    body = []
    for row in rows:
        clients = ", ".join(f"{count:,}" for count in row.clients)
        for name, values in row.deviation.items():
            paper = figures("Ridge 4", WRITERS, name) if row.data in NATURAL else NONE
            cells = (_deviation(value) for value in values)
            body.append((row.data, clients, name, *cells, paper))
        bits = [f"**{value} bits**" for value in row.exact_bits]
        body.append((row.data, clients, EXACT, *bits, NONE))
    head = ("data", "clients", "ledger", "few", "some", "many", HEAD)
    solver = ", ".join(f"{row.data} {row.solver:.1e}" for row in rows)
    return (
        "## Table 4: deviation from central retraining\n\n"
        f"{_table(head, body)}\n"
        "Relative Frobenius distance to scikit-learn's float64 head. That head's own distance "
        f"to the exact solution: {solver}. The paper's three numbers of clients are lost in "
        f"the text at hand; it has 100 writers.\n\n{footnote('Ridge 4', WRITERS)}"
    )


def _table5(runs: list[StreamResult]) -> str:
    deviations, times = [], []
    for run in runs:
        for name in (*PAPER, *OURS):
            values = [_deviation(value) for value in run.deviation[name]]
            if name == "ridge-exact":
                values = [f"**{bits} bits**" for bits in run.exact_bits]
            bound = f"{run.bound[name][-1]:.1e}" if name in OURS else "none"
            paper = figures("Ridge 5", SETTING, name)
            deviations.append((run.data, _kind(name), *values, bound, paper))
            times.append(
                (
                    run.data,
                    _kind(name),
                    f"{1e3 * sorted(run.seconds[name])[run.length // 2]:.2f}",
                    f"{run.ratio(REFIT, name):,.0f}x",
                    *(f"{run.ratio(one, name):,.0f}x" for one in FEDERATED),
                    str(run.resets.get(name, 0)),
                )
            )
    checkpoints = runs[0].checkpoints
    length = runs[0].length
    return (
        f"## Table 5 and figure 3: {length} single deletions, then added back\n\n"
        f"{_table(('data', 'method', *checkpoints, 'proven', HEAD), deviations)}\n"
        "Relative Frobenius deviation; `proven` is the relative bound that a certificate "
        "would state at the end.\n\n"
        f"{footnote('Ridge 5', SETTING)}"
        "The paper does not say on which data set. It has no table of times.\n\n"
        + _table(
            (
                *("data", "method", "median ms", "refit takes"),
                *(f"{name} takes" for name in ("FedAvg", FATS, EXACT_FUN)),
                "resets",
            ),
            times,
        )
        + "\nRatios are medians over turns. FedAvg, FATS and Exact-Fun run in one engine, "
        "whose clients answer through the bytes of messages; the other methods are timed "
        "without. The three compare with each other, and less with the rest.\n"
    )


def _skips(runs: list[Skips], streams: list[StreamResult]) -> str:
    body = [
        (
            run.data,
            run.method,
            "" if run.step is None else f"{run.step:g}",
            f"{run.accuracy:.4f}",
            f"{run.untouched()} of {len(run.repeated)}",
            f"{sum(0 < rounds < run.rounds for rounds in run.repeated)} of {len(run.repeated)}",
            f"{100 * run.share():.0f} %",
        )
        for run in runs
    ]
    head = (
        *("data", "method", "step of the grid", "accuracy"),
        *("no training", "a part of the rounds", "rounds repeated, mean"),
    )
    cost = [
        (
            run.data,
            name,
            f"{np.mean(run.seconds[name]):.2f}",
            f"{np.mean(run.operations[name]):.1e}",
            f"{np.mean(run.seconds[name]) / np.mean(run.seconds[FEDAVG]):.2f}",
            f"{np.mean(run.operations[name]) / np.mean(run.operations[FEDAVG]):.2f}",
            ", ".join(str(rounds) for rounds in run.repeated[name]),
        )
        for run in streams
        for name in FEDERATED
    ]
    costs = (
        *("data", "method", "seconds", "operations", "seconds over FedAvg's"),
        *("operations over FedAvg's", "rounds trained anew"),
    )
    return (
        "## Single deletions: what FATS and Exact-Fun repeat\n\n"
        "Rows of table 5's stream, each deleted alone from the head of all rows. Without "
        "training the head stays as it is. Exact-Fun is asked about every tenth "
        f"row, and about other grids where there are {SMALL:,} rows or fewer.\n\n"
        f"{_table(head, body)}\n"
        "The deletions that were timed for table 5 and figure 3, means over them:\n\n"
        f"{_table(costs, cost)}"
    )


def _chunks(runs: list[Chunks], pictures: Sequence[str]) -> str:
    text = "## Figure 2: a quarter of the rows leaves\n"
    for requests in (25, 50):
        mine = [run for run in runs if run.requests == requests]
        if not mine:
            continue
        head = ("method", *(f"{run.data}, {run.rows:,} rows" for run in mine), HEAD)
        body = [
            (_kind(name), *(_chunk_cell(run, name) for run in mine), _chunk(name, requests))
            for name in (*PAPER, *OURS, REFIT, *FEDERATED)
        ]
        bits = [count for run in mine for count in run.exact_bits]
        ridge = f"Figure 2: accuracy and cumulative time over {requests} chunked deletions"
        text += (
            f"\n### {requests} requests\n\n"
            "Seconds for all of them, then how many times that a scikit-learn refit and a "
            "FedAvg retraining take at each request. FedAvg, FATS and Exact-Fun forget the "
            "rows of all requests so far at once; the table has the rounds trained anew at a "
            f"request. On more than {FEW:,} rows the three are measured after the last request "
            f"alone. A request is {100 * SHARE / requests:g} % of all rows; the ridge paper "
            'deletes "large fractions", whose share is lost in the text at hand.\n\n'
            f"{_table(head, body)}\n"
            f"{TIMES}\n"
            f"`ridge-exact` and retraining: {sum(bits)} bits apart in {len(bits)} "
            "comparisons.\n"
        )
        text += _picture(pictures, f"ridge-figure2-{requests}.png", ridge)
    return text


def _chunk(name: str, requests: int) -> str:
    """Return what the ridge paper says of a chunk, or ACU's text of all requests."""
    said = figures("Ridge 7.3", SETTING, name)
    return _seconds(name, requests) if said == NONE else said


def _seconds(name: str, requests: int) -> str:
    """Return the seconds of all requests that ACU's text gives for a method, – for others."""
    return rows_of("ACU 4.3", FORGOTTEN).get(name, {}).get(f"{requests} requests", NONE)


def _chunk_cell(run: Chunks, name: str) -> str:
    total = sum(run.seconds[name]) * run.requests / len(run.seconds[name])
    if name == REFIT:
        return f"{total:.1f} s"
    if name in FEDERATED:
        return f"{total:.1f} s, {np.mean(run.repeated[name]):.0f} rounds"
    return f"{total:.2f} s, {run.ratio(REFIT, name):.0f}x, {run.ratio(FEDAVG, name):.0f}x"


def _continual(runs: list[Continual], pictures: Sequence[str]) -> str:
    head = (
        *("method", "reads retained rows", *(f"{name} gap" for name in GAPS)),
        *("seconds", "times ACU's", HEAD),
    )
    text = (
        "## ACU's main table, figures 3 and 4: gaps to the retrained head\n\n"
        "Weights: distance over the retrained head's norm. Retained, forget, test: accuracies, "
        "and attack: share of forgotten rows taken for members, in percentage points. The "
        "figures of the paper's own table are lost in the text at hand, which says that ACU's "
        f"are zero; the column has the seconds that it tells. Data sets of more than "
        f"{MOST_ROWS:,} rows are omitted: most baselines "
        "train on all of them at each request. `ridge-exact` publishes its head in float32. "
        'The column "Privacy" of the paper marks what reads no retained rows: NegGrad and ACU. '
        "Seconds are of the processor; those of ACU, `acu` and `ridge-exact` are the median of "
        "several runs before, between and after the baselines. Those of retraining are of one, "
        "after the last request, times the requests. From 25 to 50 requests the paper's ACU "
        "takes 1.43 times as long, its NegGrad+ 3.40 times; a retraining takes 5,400 s there, "
        "and 25 of them more than 10,000 times ACU's seconds.\n"
    )
    for run in runs:
        body = []
        for name in (NO_METHOD, ANOTHER_SEED, *BASELINES, *ANALYTIC):
            paper = _seconds(name, run.requests)
            if name in run.refused:
                body.append((name, "", run.refused[name], *[""] * (len(head) - 4), paper))
                continue
            if name not in run.gaps:
                continue
            gaps, spent = run.gaps[name], run.seconds.get(name)
            cells = [
                f"{gaps['weights']:.1e}",
                *(f"{100 * gaps[part]:.2f}" for part in GAPS[1:]),
            ]
            times = ["", ""]
            if spent is not None:
                times = [f"{spent:.2f}", f"{spent / run.seconds['ACU']:,.1f}"]
            body.append((_kind(name), _reads(name), *cells, *times, paper))
        sgd, ridge = run.reference["SGD"], run.reference["ridge"]
        text += (
            f"\n### {run.data}, {run.requests} requests, {run.rows:,} rows leave\n\n"
            f"{_table(head, body)}\n"
            f"Retrained: SGD {_accuracies(sgd)}; ridge {_accuracies(ridge)}.\n"
        )
    for requests, number in ((25, 3), (50, 4)):
        said = f"ACU's figure {number}: accuracies and cumulative time over {requests} requests"
        text += _picture(pictures, f"acu-figure{number}.png", said)
    return text


def _reads(name: str) -> str:
    """Return the opposite of a tick in the paper's column "Privacy", blank for no method."""
    if name in (NO_METHOD, ANOTHER_SEED):
        return ""
    return "yes" if name in BASELINES and name != "NegGrad" else "no"


def _accuracies(found: Mapping[str, float]) -> str:
    return (
        f"{100 * found['test']:.1f} % on test rows, {100 * found['retained']:.1f} % on retained"
    )


def _messages(rows: list[Messages], streams: list[StreamResult]) -> str:
    kinds = list(next(iter(rows[0].bytes.values())))
    took = {run.data: run for run in streams}
    body = [
        (
            row.data,
            str(row.dimension),
            str(row.classes),
            count,
            *(f"{sizes[kind]:,}" for kind in kinds),
            *(_server(row, int(count), name, took.get(row.data)) for name in VARIANTS),
        )
        for row in rows
        for count, sizes in row.bytes.items()
    ]
    head = ("data", "d", "c", "rows", *kinds, *(f"server, {name}" for name in VARIANTS))
    orders = [(name, *ORDERS[name]) for name in VARIANTS]
    cheaper = [
        count
        for count in rows[0].bytes
        if all(
            operations("Variant B", int(count), row.dimension, row.classes)
            < operations("Variant A", int(count), row.dimension, row.classes)
            for row in rows
        )
    ]
    return (
        "## Table 1: bytes of one message, operations of the server\n\n"
        f"{_table(head, body)}\n"
        "Server: operations of one request, counted by the formulas below, a multiply-add as "
        "two; of one row also the median milliseconds of table 5's deletions, client's message "
        "included. Larger chunks were not timed for this table. By these counts Variant B is "
        f"the cheaper one everywhere at {' and '.join(cheaper) or 'no number of'} rows.\n\n"
        f"{_table(ORDER_HEAD, orders)}\n"
        "k = min(rows, d). The paper's table 1 has orders and no figures, and its cells are "
        "lost in the text at hand. Its prose says that the Cholesky solve dominates Variant A "
        "and the SMW update Variant B; the orders are those of its equations (5) to (10). "
        "Neither grows with the rows that are retained.\n"
    )


def _server(row: Messages, rows: int, name: str, stream: StreamResult | None) -> str:
    """Return the operations of the server for one request, and its milliseconds if timed."""
    found = f"{operations(name, rows, row.dimension, row.classes):.1e}"
    if rows != 1 or stream is None:
        return found
    return f"{found}; {1e3 * sorted(stream.seconds[name])[stream.length // 2]:.2f} ms"


def operations(name: str, rows: int, d: int, c: int) -> float:
    """Return those of one update and its head, as ledgers.py computes them, without sums."""
    if name == "Variant A":
        return d**3 / 3 + 2 * d * d * c  # factor, two triangular solves
    k = min(rows, d)
    inverse = 4 * k * d * d + 3 * k * k * d + k**3 / 3  # V, I ± UᵀV, its factor, P'
    return inverse + 4 * k * d * c + 2 * d * d * c  # ΔC - ΔG W, P' times it


def _sketches(rows: list[Messages]) -> str:
    body: list[tuple[str, ...]] = []
    for row in rows:
        for one in row.sketches:
            size = (row.data, one.kind, str(one.rank), f"{100 * one.share:.0f} %")
            if one.deviation is None or one.proven is None or one.resolvent is None:
                body.append((*size, "not definite: refitted", "", "", ""))
                continue
            errors = (one.deviation, one.proven, one.resolvent)
            body.append((*size, *(f"{error:.1e}" for error in errors), f"{one.accuracy:.4f}"))
    head = ("data", "sketch", "rank", "bytes", "deviation", "proven", "theorem A2.1", "test")
    return (
        f"## Sketched messages: {BATCH} rows are deleted (appendix A2)\n\n"
        f"{_table(head, body)}\n"
        "Bytes: of the exact triangle's. Deviation and bounds are relative to the norm of the "
        "head refitted without the rows.\n"
    )


def _width(rows: list[Width]) -> str:
    head = (
        "d",
        "ACU",
        "learn s",
        "forget 1, s",
        "forget 128, s",
        "learn 128 back, s",
        "peak GiB",
        "per d × d",
        "deviation",
        "proven",
        "test",
    )
    body = [
        (
            f"{row.width:,}",
            "plain float64" if row.kind == "float64" else "exact statistics",
            f"{row.learn:.1f}",
            f"{row.forget_one:.3f}",
            f"{row.forget_batch:.2f}",
            f"{row.learn_back:.2f}",
            f"{row.peak / 1024:.2f}",
            f"{(row.peak - row.before) * 2**20 / (8 * row.width**2):.1f}",
            f"{row.deviation:.1e}",
            "none" if row.bound is None else f"{row.bound:.1e}",
            f"{row.accuracy:.4f}",
        )
        for row in rows
    ]
    return (
        f"## ACU on wide random features: {rows[0].data}, {rows[0].rows:,} rows\n\n"
        f"{_table(head, body)}\n"
        "`per d × d`: what the peak adds to the memory held before, in matrices of d × d "
        "float64.\n"
    )


def _cost(cost: ClaimedCosts) -> str:
    claims = [
        (line.name, _number(line.value), line.target, "met" if line.met else "**not met**")
        for line in cost.claims
    ]
    sizes = [
        (f"{n:,}", f"{1e3 * deletion:.2f}", f"{1e3 * refit:.1f}", f"{refit / deletion:.0f}x")
        for n, deletion, refit in zip(cost.sizes, cost.deletion, cost.refits, strict=True)
    ]
    return (
        f"## One deletion against a refit: n {cost.n:,}, d {cost.d}, c {cost.c}\n\n"
        f"{_table(('claim', 'measured', 'target', ''), claims)}\n"
        f"{_table(('n', 'deletion with bound, ms', 'refit, ms', 'ratio'), sizes)}"
    )


def _kind(name: str) -> str:
    return f"{name}, plain float64" if name in PAPER else f"`{name}`" if name in OURS else name


def _number(value: float) -> str:
    return f"{value:,.0f}" if 100 <= value < 1e9 else f"{value:.3g}"


def _deviation(value: float | None) -> str:
    return "breaks down" if value is None else f"{value:.1e}"


def _picture(pictures: Sequence[str], name: str, text: str) -> str:
    return f"\n![{text}]({name})\n" if name in pictures else ""


def _table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    names = list(head)
    rows = [names, ["---"] * len(names), *(list(row) for row in body)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)

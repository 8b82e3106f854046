"""The tables and figures of the ridge paper and of ACU, measured anew on data at hand.

Sources: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models"
(the ridge paper), tables 3 to 5, figures 2 and 3; "ACU: Analytic Continual Unlearning for
Efficient and Exact Forgetting with Privacy Preservation", figures 3 and 4.

    python -m benchmarks.ridge_paper [--data DIR_OR_FILE]... [--quick] [--only NAME,...]
"""

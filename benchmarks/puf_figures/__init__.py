"""PUF's figures 4 to 6: what recovery does after a step, and the choice of η_u and E_u.

python -m benchmarks.puf_figures [--setting digits] [--seeds N] [--out DIR]
"""

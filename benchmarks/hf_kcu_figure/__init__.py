"""HF-KCU's figure 2: how fast conjugate gradients solve the step's equation.

python -m benchmarks.hf_kcu_figure --setting digits --out docs/benchmarks
"""

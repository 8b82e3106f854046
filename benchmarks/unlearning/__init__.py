"""Unlearning of federated deep models: the tables of PUF and HF-KCU, measured again.

Every method of the registry runs on the same trainings, is compared with the model retrained
without what goes, and stands beside what another seed of the same retraining differs by.
`python -m benchmarks.unlearning` measures, keeps each result as one line and renews the page.
"""

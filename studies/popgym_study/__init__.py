"""POPGym: PPO with a ledger, compared with other memories. `python -m studies.popgym_study --help` says how.

The package is not called popgym: tests and scripts have this folder's parent on their path, and `import popgym` would
find the study instead of the suite.
"""

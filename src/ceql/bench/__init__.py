"""The experiments of the paper, and the baselines.

`experiments` says what is run, `systems` what runs it, `measure` how: each system in its own process, with a
time limit, and with its matches counted. `report` and `figures` show the results.
"""

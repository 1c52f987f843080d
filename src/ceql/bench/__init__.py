"""The experiments of the paper, and what they are measured against.

`experiments` says what is run, `systems` what runs it, `measure` how: in a process of its own, with a time
limit, and with its matches counted. `report` and `figures` show the rows that come out.
"""

"""From the published raw form of the paper's data sets to ordered event streams, on Spark.

`raw_rows` reads lines and says what is wrong with them; `stocks`, `smart_homes` and `taxis` say what the columns are
and which rows are events; `zones` knows where coordinates lie; `event_stream` writes the stream, and aside what is no
part of it.
"""

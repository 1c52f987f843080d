"""The queries of the paper "CORE: a Complex Event Recognition Engine" (VLDB 2022).

`figure` has the three of its first figure (a parenthesis of the third mended); `stocks`,
`smart_homes` and `taxis` those of its evaluation. `s3` is the paper's S3, `s3_no_output` its
S3', which asks for one more event that never occurs. Each declares the types it reads.
"""

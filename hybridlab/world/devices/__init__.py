"""Where ranks compute, and by which backend they meet.

`placement` says which backend and device each rank gets, and `meet` does it. Where somebody else starts the ranks,
`surroundings` places them by what they find.
"""

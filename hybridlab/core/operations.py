"""The names of operations in a ledger: messages sent, and messages received.

A message is in two ledgers, its sender's and its receiver's; sums of bytes count it at the sender.
"""

SENDS, RECEIVES = ("send", "isend"), ("recv", "irecv")

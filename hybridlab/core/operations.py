"""The names of operations in a ledger: messages sent, and messages received.

A message is in two ledgers, its sender's and its receiver's; where bytes are added up, it counts at its sender.
"""

SENDS, RECEIVES = ("send", "isend"), ("recv", "irecv")

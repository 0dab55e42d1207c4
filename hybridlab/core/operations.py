"""What operations are called in a ledger: messages that leave, and messages that arrive.

A message stands in two ledgers, its sender's and its receiver's; where bytes are added up, it counts at its sender.
"""

SENDS, RECEIVES = ("send", "isend"), ("recv", "irecv")

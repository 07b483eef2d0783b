"""The matching engine: order books, auctions and trades in kernels, and the journal of what happened."""

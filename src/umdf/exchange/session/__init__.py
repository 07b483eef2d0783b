"""The trading session, as the bulk day and the live exchange run it: phases and states, auctions, resets."""

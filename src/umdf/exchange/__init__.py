"""An exchange: the synthetic market, and its captures with the truth of what happened."""

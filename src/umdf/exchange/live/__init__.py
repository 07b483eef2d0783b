"""The live exchange: a trading week by its schedule, an order flow, an operator, any number of published channels."""

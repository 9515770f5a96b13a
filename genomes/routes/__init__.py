"""Routes: ways to implement an operator, each with its space and its kernel sources."""

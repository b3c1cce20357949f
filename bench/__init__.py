"""What things cost, measured: `python -m bench` from the root of the checkout. It asserts nothing."""

"""`overdrive tune`: measures which algorithm a collective should take, and writes the rules."""
